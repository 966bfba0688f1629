"""A receiver of webhooks on loopback, which verifies signatures as docs/webhooks.md tells receivers to."""

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOLERANCE_SECONDS = 300


def verified(headers: Any, body: bytes, secret: str) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    fresh = abs(time.time() - int(headers["webhook-timestamp"])) < TOLERANCE_SECONDS
    return fresh and any(hmac.compare_digest(wanted, one) for one in headers["webhook-signature"].split())


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def is_signed_with(self, secret: str) -> bool:
        return verified(self.headers, self.body, secret)


@dataclass
class Receiver:
    """`statuses` are the next answers, 200 once they are used up; `gate` lets an answer wait."""

    port: int = 0
    scheme: str = "http"
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b"ok"
    got: list[Received] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hooks/T0/B0/path-secret"


@contextmanager
def receiver(pem: Path | None = None) -> Iterator[Receiver]:
    """A receiver, by TLS with the certificate and key of `pem`."""
    found = Receiver(scheme="https" if pem else "http")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.got.append(Received(self.path, headers, body))
            found.asked.set()
            found.gate.wait(60)
            self.send_response(found.statuses.pop(0) if found.statuses else 200)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(found.answer)))
            self.end_headers()
            self.wfile.write(found.answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        found.gate.set()
        server.shutdown()
        server.server_close()
