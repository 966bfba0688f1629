"""A gate between pods and the control plane; while it is closed, connections are refused."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from embedded.ports import free_port

PIECE = 1 << 16


class Gate:
    """A proxy from `port` to port `to` of the same host. Open at the start of `with`."""

    def __init__(self, host: str, *, to: int):
        self.host, self.to, self.port = host, to, free_port(host)
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        self._listener = socket.create_server((self.host, self.port))
        threading.Thread(target=self._let_in, args=[self._listener], daemon=True).start()

    def close(self) -> None:
        """Stop listening, and cut open connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
            listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _let_in(self, listener: socket.socket) -> None:
        while True:
            try:
                visitor, _ = listener.accept()
                inside = socket.create_connection((self.host, self.to))
            except OSError:
                if self._listener is not listener:
                    return
                continue
            self._open |= {visitor, inside}
            for source, target in ((visitor, inside), (inside, visitor)):
                threading.Thread(target=self._carry, args=[source, target], daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE):
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()
