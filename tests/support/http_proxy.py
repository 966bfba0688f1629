"""An HTTP proxy that opens tunnels (CONNECT), and records the requests."""

import base64
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.tls import pump


@dataclass
class Proxy:
    """Connects every client to one address, whatever name it requests, so that clients cannot resolve the name."""

    behind: tuple[str, int]
    login: str = ""  # user:password, if it requires them
    is_silent: bool = False  # accepts connections and never answers
    asked: list[str] = field(default_factory=list)
    links: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> "Proxy":
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self.listening, *self.links):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self.listening.accept()
                self.links.append(link)
                threading.Thread(target=self._meet, args=[link], daemon=True).start()

    def _meet(self, link: socket.socket) -> None:
        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += link.recv(65536)
            first, *lines = head.decode().split("\r\n")
            self.asked.append(first)
            if self.is_silent:
                return
            given = next((line.partition(": ")[2] for line in lines if line.startswith("Proxy-Authorization: ")), "")
            if self.login and given != "Basic " + base64.b64encode(self.login.encode()).decode():
                link.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            behind = socket.create_connection(self.behind)
            self.links.append(behind)
            link.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=pump, args=[behind, link], daemon=True).start()
            pump(link, behind)
