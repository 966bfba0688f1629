"""The agent's Unix socket: shims send their hello and their pipes on it, `muster.report` sends points.

It is in the abstract namespace (unix(7)): no file to clean up, and no limit of 108 bytes on the state folder's path.
Every peer's user id is checked, because such a name has no permissions.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import secrets
import socket
import struct
from typing import Any, Callable

from ..loop import Loop
from . import message_checks

RECEIVE_BYTES = 64 << 10
LINE_LIMIT_BYTES = 1 << 20
FDS_LIMIT = 2  # a rank's stdout and stderr
WELCOME = b"\n"
_INT_BYTES = array.array("i").itemsize


class Peer:
    """One connection: JSON lines, and file descriptors with the first of them."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.fds: list[int] = []
        self.rank: Any = None  # set by the receiver: the rank, or its number, that this peer reports for
        self._rest = b""

    def receive(self) -> tuple[list[Any], int]:
        """Return newly complete messages, and how many bytes were read; 0 bytes when the peer is gone."""
        try:
            piece, rights, _, _ = self.connection.recvmsg(RECEIVE_BYTES, socket.CMSG_SPACE(FDS_LIMIT * _INT_BYTES))
        except OSError:
            return [], 0
        for level, kind, content in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.fds += array.array("i", content[: len(content) // _INT_BYTES * _INT_BYTES])
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LINE_LIMIT_BYTES:
            self._rest = b""
        return [message for message in map(_parsed, lines) if message is not None], len(piece)

    def welcome(self) -> None:
        """Confirm that its pipes are kept: whatever it writes from now on is found, even if the agent dies."""
        with contextlib.suppress(OSError):
            self.connection.send(WELCOME)


class Server:
    """Accept peers and pass on their messages."""

    def __init__(
        self, loop: Loop, *, on_message: Callable[[Peer, Any], None], on_gone: Callable[[Peer], None], limit: int = 512
    ) -> None:
        name = f"muster-{os.getpid()}-{secrets.token_hex(8)}"
        self.address = "@" + name
        self.peers: set[Peer] = set()
        self._loop, self._on_message, self._on_gone = loop, on_message, on_gone
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + name)
        self._socket.listen(limit)
        self._socket.setblocking(False)
        loop.watch(self._socket, ready=self._accept)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:  # until none is waiting: that costs only one extra call
                self._welcome(self._socket.accept()[0])

    def _welcome(self, connection: socket.socket) -> None:
        if _user(connection) not in (os.getuid(), 0):
            connection.close()
            return
        connection.setblocking(False)
        peer = Peer(connection)
        self.peers.add(peer)
        self._loop.watch(connection, ready=lambda: self._receive(peer))

    def _receive(self, peer: Peer) -> float:
        if peer not in self.peers:  # dropped in this same turn
            return 0.0
        messages, count = peer.receive()
        is_over = not count
        try:
            for message in messages:
                if message_checks.is_fit(message):
                    self._on_message(peer, message)
                elif isinstance(message, dict) and "hello" in message:
                    is_over = True  # without a welcome the shim turns into its rank, and leaves the rank's output alone
                    break
        finally:
            if is_over:
                self._drop(peer)
        return count / RECEIVE_BYTES

    def _drop(self, peer: Peer) -> None:
        self._loop.forget(peer.connection)
        peer.connection.close()
        self.peers.discard(peer)
        self._on_gone(peer)


def _user(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
