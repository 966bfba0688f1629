"""A minimal control plane: section 2 of docs/wire.md over real HTTP, independent of the agent's own code."""

import contextlib
import hashlib
import http.server
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support import packs


@dataclass
class Received:
    """The items and lines that one replica sent, in the order in which they were applied."""

    ack: int = 0
    posts: int = 0
    items: list[dict[str, Any]] = field(default_factory=list)
    lines: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)  # rank -> (number, ms, text)

    def kind(self, kind: str, **wanted: Any) -> list[dict[str, Any]]:
        return [one for one in self.items if one["kind"] == kind and all(one.get(k) == v for k, v in wanted.items())]

    def texts(self, rank: int = -1) -> list[str]:
        return [text for _, _, text in self.lines.get(rank, [])]

    def end_of(self, rank: int) -> dict[str, Any]:
        return next(one for one in self.kind("rank", rank=rank) if one["state"] != "running")


class FakeControlPlane:
    """`code` is the job's tree (None: 204); `commands` go into every reply; `refuse` is the status of every reply."""

    def __init__(self) -> None:
        self.replicas: dict[str, Received] = {}
        self.code: dict[str, bytes | str] | None = None  # path -> content, or the target of a link; *.sh are executable
        self.lists = ""  # replaces the manifest of `code`
        self.given: list[str] = []  # requested digests, in order
        self.spoil: Callable[[bytes], bytes] = lambda pack: pack  # corrupts a pack in transit
        self.slowness = 0.0  # seconds before a pack is sent
        self.commands: list[dict[str, Any]] = []
        self.refuse = 0
        self.headers: dict[str, str] = {}  # headers of refusals
        self.refusals = 0
        self.wrong = ""  # batches with items of this kind get a 400 that names it
        self.losses = 0  # this many answers are lost after their batch was applied
        self.lock = threading.Lock()
        self._server: http.server.ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def up(self) -> None:
        control_plane = self
        self._server = _Server(("127.0.0.1", self.port), type("Bound", (_Handler,), {"control_plane": control_plane}))
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            for connection in list(self._server.connections):
                with contextlib.suppress(OSError):  # close() alone would leave it open: the handler holds it too
                    connection.shutdown(socket.SHUT_RDWR)
        self._server = None

    def of(self, token: str = "worker-0") -> Received:
        return self.replicas.setdefault(token, Received())

    def apply(self, token: str, body: bytes) -> dict[str, Any]:
        with self.lock:
            received = self.of(token)
            received.posts += 1
            header, blobs = _parted(body)
            assert header["version"] == 1 and abs(header["sent_at"] - time.time()) < 60
            if header["seq"] == received.ack + 1:
                received.ack += 1
                received.items += header["items"]
                _read(received, header, blobs)
            return {"ack": received.ack, "time": time.time(), "commands": self.commands}


def _parted(body: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack(">I", body[:4])
    return json.loads(body[4 : 4 + length]), body[4 + length :]


def _read(received: Received, header: dict[str, Any], blobs: bytes) -> None:
    for item in header["items"]:
        if item["kind"] == "log":
            text = zlib.decompress(blobs[: item["bytes"]])
            blobs = blobs[item["bytes"] :]
            assert len(text) == item["raw_bytes"]
            rows = text.decode().split("\n")[:-1]
            assert len(rows) == item["lines"]
            kept = received.lines.setdefault(item["rank"], [])
            for number, row in enumerate(rows, item["first_line"]):
                at, _, line = row.partition(" ")
                kept.append((number, int(at), line))
    assert blobs == b"" or not any(item["kind"] == "log" for item in header["items"])


def listed(code: dict[str, bytes | str]) -> str:
    return packs.manifest(
        *(
            packs.link(path, one) if isinstance(one, str) else packs.file(path, one, executable=path.endswith(".sh"))
            for path, one in code.items()
        )
    )


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connections: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    control_plane: FakeControlPlane

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # the sender died while sending
            self.close_connection = True
            return None
        if self.path == "/agent/v1/workspace":
            return self._give(body)
        assert self.path == "/agent/v1/batches"
        assert self.headers["Content-Type"] == "application/x-muster-batch"
        if self.control_plane.refuse:
            self.control_plane.refusals += 1
            return self._answer(self.control_plane.refuse, b"{}", headers=self.control_plane.headers)
        if self.control_plane.wrong and self.control_plane.wrong in [
            item["kind"] for item in _parted(body)[0]["items"]
        ]:
            errors = [{"field": f"{self.control_plane.wrong}.nonsense", "message": "is wrong"}]
            return self._answer(400, json.dumps({"errors": errors}).encode())
        reply = self.control_plane.apply(self._token(), body)
        if self.control_plane.losses > 0:
            self.control_plane.losses -= 1
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        return self._answer(200, json.dumps(reply).encode())

    def do_GET(self) -> None:
        assert self.path == "/agent/v1/workspace"
        if self.control_plane.refuse:
            return self._answer(self.control_plane.refuse, b'{"title": "so it was told to"}')
        if self.control_plane.code is None and not self.control_plane.lists:
            return self._answer(204, b"")
        text = (self.control_plane.lists or listed(self.control_plane.code or {})).encode()
        headers = {"X-Muster-Digest": hashlib.sha256(text).hexdigest(), "X-Muster-Team": "7"}
        return self._answer(200, zlib.compress(text), kind="application/x-muster-manifest", headers=headers)

    def _give(self, body: bytes) -> None:
        asked = [body[at : at + 32].hex() for at in range(0, len(body), 32)]
        self.control_plane.given += asked
        time.sleep(self.control_plane.slowness)
        contents = {packs.sha(one): one for one in (self.control_plane.code or {}).values() if isinstance(one, bytes)}
        self._answer(
            200,
            self.control_plane.spoil(packs.pack(*(contents[one] for one in asked))),
            kind="application/x-muster-pack",
        )

    def _token(self) -> str:
        return self.headers["Authorization"].removeprefix("Bearer ")

    def _answer(
        self, status: int, content: bytes, kind: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status != 204:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass
