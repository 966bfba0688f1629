"""A fake API server with TLS."""

import json
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.tls import authority

NAME = "api.cluster.internal"  # name in the certificate: not an address, and not in DNS


@dataclass(frozen=True)
class Seen:
    path: str
    headers: dict[str, str]


class ApiServer(ThreadingHTTPServer):
    """Answers every GET with {}, or with 401 if the token is wrong. GET /watched sends lines in two chunks."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path):
        self.ca, self.pem = authority(folder, "api", NAME)
        self.token: str | None = None  # None: no credentials needed
        self.goes_on = threading.Event()  # releases the second chunk of lines
        self.goes_on.set()
        self.seen: list[Seen] = []
        self.names: list[str | None] = []  # server names sent by clients (SNI)
        super().__init__(("127.0.0.1", 0), _Handler)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.pem)
        self.context.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self.socket = self.context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request, client_address) -> None:
        """Ignore errors: a client that rejects the certificate closes the connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        server.seen.append(Seen(self.path, dict(self.headers)))
        given = self.headers.get("Authorization", "").partition(" ")[2]
        if server.token is not None and given != server.token:
            self._answer(401, {"message": "Unauthorized"})
        elif self.path.startswith("/watched"):
            self._send_lines()
        else:
            self._answer(200, {})

    def _answer(self, status: int, body: dict) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_lines(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (b'{"a": 1}\n{"b"', b": 2}\n"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            self.server.goes_on.wait(10)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *words) -> None:
        pass
