"""A private certificate authority, and a TLS front for Postgres or Redis."""

import datetime
import ipaddress
import os
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # the first message of a Postgres client


def authority(folder: Path, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """(the authority's certificate, a server certificate with its key for that address or name), as PEM files."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    own = _certificate(issuer, issuer, root.public_key(), root, x509.BasicConstraints(ca=True, path_length=0))
    alternative = x509.SubjectAlternativeName([_general_name(address)])
    server = _certificate(subject, issuer, key.public_key(), root, alternative)
    ca, pem = folder / f"{name}-ca.pem", folder / f"{name}.pem"
    ca.write_bytes(own.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(server.public_bytes(serialization.Encoding.PEM) + private)
    return ca, pem


def to_postgres() -> socket.socket:
    """A connection to the tests' Postgres, for `front`."""
    asked = parse_qs(urlsplit(os.environ["DATABASE_URL"]).query)
    link = socket.socket(socket.AF_UNIX)
    link.connect(f"{asked['host'][0]}/.s.PGSQL.{asked['port'][0]}")
    return link


def to_redis() -> socket.socket:
    found = urlsplit(os.environ["REDIS_URL"])
    return socket.create_connection((found.hostname, found.port))


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _certificate(subject, issuer, public, signer, extension) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    made = made.not_valid_after(now + datetime.timedelta(days=1)).add_extension(extension, critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    return made.add_extension(key_id, critical=False).sign(signer, hashes.SHA256())


@dataclass
class Front:
    """Terminates TLS on a port and forwards the plain connection."""

    port: int
    secured: int = 0  # connections with a completed TLS handshake
    links: list[socket.socket] = field(default_factory=list)


@contextmanager
def front(pem: Path, connect, *, is_postgres: bool = False, address: str = "127.0.0.1"):
    """`connect()` returns a new socket to the server behind."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    listener = socket.create_server((address, 0))
    found = Front(listener.getsockname()[1])

    def serve():
        with suppress(OSError):
            while True:
                link, _ = listener.accept()
                found.links.append(link)
                threading.Thread(target=meet, args=[link], daemon=True).start()

    def meet(link):
        with suppress(OSError):
            if is_postgres:
                if link.recv(8, socket.MSG_WAITALL) != SSL_REQUEST:
                    link.close()
                    return
                link.sendall(b"S")
            secure = context.wrap_socket(link, server_side=True)
            found.secured += 1
            behind = connect()
            found.links += [secure, behind]
            threading.Thread(target=pump, args=[behind, secure], daemon=True).start()
            pump(secure, behind)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield found
    finally:
        for one in [listener, *found.links]:
            one.close()


def pump(source, target):
    with suppress(OSError, ValueError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
