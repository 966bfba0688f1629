"""Probe the web process over a plain socket: an HTTP client would make the supervisor larger."""

import socket

_TIMEOUT_SECONDS = 1.0


class Probe:
    """One request at a time that waits for its answer, so that requests do not pile up while the process starts."""

    def __init__(self, where: tuple[str, int], *, host: str):
        self._where = (_reachable(where[0]), where[1])
        self._host = host
        self._link: socket.socket | None = None
        self._heard = b""
        self.refusals = 0  # answers that were not 200

    def is_answered(self) -> bool:
        """Return whether the process answered; never blocks for long, so call it again until it is true."""
        try:
            return self._listen(self._link or self._ask())
        except BlockingIOError:
            return False
        except OSError:  # refused, or the process died on it: try again next time
            self._close()
            return False

    def _ask(self) -> socket.socket:
        link = self._link = socket.create_connection(self._where, timeout=_TIMEOUT_SECONDS)
        link.sendall(f"GET /healthz HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n\r\n".encode())
        link.setblocking(False)
        return link

    def _listen(self, link: socket.socket) -> bool:
        piece = link.recv(1024)
        self._heard += piece
        if b"\r\n" in self._heard or not piece:
            is_well = self._heard.split(b" ", 2)[1:2] == [b"200"]
            self.refusals += bool(self._heard) and not is_well
            self._close()
            return is_well
        return False

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link, self._heard = None, b""


def _reachable(host: str) -> str:
    """Return an address to connect to for one that is listened on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
