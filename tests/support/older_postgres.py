"""A Postgres that says it is an older one: the tests' own server, behind a relay that changes its greeting."""

import re
import socket
import threading
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

VERSION = re.compile(rb"(server_version\0)\d+((?:\.\d+)?[^\0]*\0)")


class OlderPostgres:
    """Listens on a port of this machine as long as its block lasts. `says`: the major version, of two digits."""

    def __init__(self, url: str, *, says: str):
        """`url` names the server by the folder of its socket: postgres://USER@/NAME?host=FOLDER&port=PORT."""
        self._target, self._says = urlsplit(url), says.encode()
        asked = parse_qs(self._target.query)
        self._socket = f"{asked['host'][0]}/.s.PGSQL.{asked['port'][0]}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []

    @property
    def url(self) -> str:
        user = self._target.netloc.rpartition("@")[0]
        return self._target._replace(netloc=f"{user}@127.0.0.1:{self._listener.getsockname()[1]}", query="").geturl()

    def __enter__(self) -> "OlderPostgres":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._socket)
                self._open += [client, server]
                threading.Thread(target=self._relay, args=(client, server), daemon=True).start()
                threading.Thread(target=self._greet, args=(server, client), daemon=True).start()

    def _greet(self, server: socket.socket, client: socket.socket) -> None:
        """Relay, with another version in the greeting, which the server sends in one piece."""
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(VERSION.sub(rb"\g<1>" + self._says + rb"\g<2>", data))
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
