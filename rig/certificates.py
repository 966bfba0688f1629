"""One CA and what it signs: the API server, its clients, and the key of service accounts."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    """Files are in `folder`, readable by their owner only."""

    def __init__(self, folder: Path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("rig")
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = _builder(self._name, issuer=self._name, key=self._key)
        builder = builder.add_extension(x509.BasicConstraints(True, None), True).add_extension(usage, True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = builder.add_extension(identifier, False).sign(self._key, hashes.SHA256())
        self.pair = _write(folder / "ca", certificate=self._certificate, key=self._key)

    def server(self, address: str = "127.0.0.1") -> Pair:
        addresses = [x509.IPAddress(ipaddress.ip_address(one)) for one in sorted({"127.0.0.1", "10.96.0.1", address})]
        names = x509.SubjectAlternativeName([*map(x509.DNSName, NAMES), *addresses])
        return self._sign("server", _name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, names=names)

    def client(self, user: str, *, group: str = "", has_ended: bool = False) -> Pair:
        days = -0.5 if has_ended else 30
        return self._sign(user.replace(":", "-"), _name(user, group=group), ExtendedKeyUsageOID.CLIENT_AUTH, days=days)

    def service_account_key(self) -> Pair:
        """Create the key with which the API server signs tokens; its public half checks them."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = self.folder / "accounts.pub"
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        return Pair(public, _write_key(self.folder / "accounts.key", key))

    def _sign(
        self, file: str, name: x509.Name, usage: x509.ObjectIdentifier, *, names: x509.SubjectAlternativeName | None = None,
        days: float = 30,
    ) -> Pair:  # fmt: skip
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, issuer=self._name, key=key, days=days)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(identifier, False)
        if names is not None:
            builder = builder.add_extension(names, False)
        return _write(self.folder / file, certificate=builder.sign(self._key, hashes.SHA256()), key=key)


def _builder(
    name: x509.Name, *, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float = 30
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - DAY).not_valid_after(now + days * DAY)


def _name(user: str, *, group: str = "") -> x509.Name:
    """Build a name: Kubernetes reads the user from CN and the group from O."""
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _write(stem: Path, *, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    path = stem.with_name(stem.name + ".crt")
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Pair(path, _write_key(stem.with_name(stem.name + ".key"), key))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path
