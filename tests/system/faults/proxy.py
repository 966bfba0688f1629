"""A proxy between an installation and its Postgres that cuts a connection in the middle of a commit.

`cut(when, of=text)` waits for the next COMMIT of a transaction in which `text` was sent. "before": the COMMIT never arrives,
and Postgres rolls back. "after": Postgres commits, but its answer is lost, so that the client does not know the outcome.
For a statement that is its own transaction (`is_alone`), the statement itself or its answer is lost.
"""

import contextlib
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # a simple query (PostgreSQL docs, "Message Formats")
BEGIN = b"Q\x00\x00\x00\x0aBEGIN\x00"
READY = b"Z\x00\x00\x00\x05"  # ReadyForQuery: the answer is complete
KEPT = 1 << 20  # bytes of a transaction that are searched


@dataclass
class Cut:
    when: str
    of: bytes
    is_alone: bool = False
    is_done: bool = False


class Proxy:
    def __init__(self, folder: Path, upstream: Path):
        self._upstream = str(upstream / SOCKET)
        self._cut: Cut | None = None
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        os.chmod(folder / SOCKET, 0o600)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def cut(self, when: str, *, of: str, is_alone: bool = False) -> Cut:
        self._cut = Cut(when, of.encode(), is_alone)
        return self._cut

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._upstream)
                wants = threading.Event()  # set while the answer is to be lost
                threading.Thread(target=self._up, args=(client, server, wants), daemon=True).start()
                threading.Thread(target=_down, args=(client, server, wants), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, wants: threading.Event) -> None:
        said = b""
        with contextlib.suppress(OSError):
            while piece := client.recv(1 << 16):
                said = (said + piece)[-KEPT:]
                if cut := self._take(said, piece):
                    if cut.when == "before":
                        break
                    wants.set()  # the other direction closes both when Postgres has answered
                if COMMIT in piece or BEGIN in piece:
                    said = piece
                server.sendall(piece)
        _close(client, server)

    def _take(self, said: bytes, piece: bytes) -> Cut | None:
        """The pending cut if it matches the bytes being sent; each cut is taken only once."""
        with self._lock:
            cut = self._cut
            if cut is None or cut.is_done or not _is_meant(cut, said, piece):
                return None
            cut.is_done = True
            return cut


def _is_meant(cut: Cut, said: bytes, piece: bytes) -> bool:
    if cut.is_alone:
        return cut.of in piece
    return COMMIT in piece and cut.of in said[said.rfind(BEGIN) + 1 :]


def _down(client: socket.socket, server: socket.socket, wants: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while piece := server.recv(1 << 16):
            if wants.is_set() and READY in piece:
                break
            client.sendall(piece)
    _close(client, server)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
