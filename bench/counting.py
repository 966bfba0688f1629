"""A proxy that counts the bytes a client sends, heads included. It understands nothing of what passes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

PIECE_BYTES = 1 << 16


class Counter:
    def __init__(self, url: str):
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 80)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def since(self) -> int:
        """Bytes sent since the last time that this was asked."""
        found, self.sent = self.sent, 0
        return found

    def close(self) -> None:
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._door.accept()[0]
            except OSError:
                return
            server = socket.create_connection(self._target)
            for source, to, is_counted in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, to, is_counted), daemon=True).start()

    def _pump(self, source: socket.socket, to: socket.socket, is_counted: bool) -> None:
        try:
            while piece := source.recv(PIECE_BYTES):
                self.sent += len(piece) if is_counted else 0
                to.sendall(piece)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()


@contextmanager
def counting(url: str) -> Iterator[Counter]:
    counter = Counter(url)
    try:
        yield counter
    finally:
        counter.close()
