"""Hold the attempt's rendezvous port until the launcher listens on it, so that no other process gets it."""

from __future__ import annotations

import re
import socket
from typing import Sequence

from .output.blame import Line

LOOPBACK = "127.0.0.1"
_IN_USE = re.compile(rb"EADDRINUSE|address already in use|errno: 98\b", re.IGNORECASE)


def hold(port: int) -> socket.socket:
    """Bind the port without listening: another socket with SO_REUSEADDR may bind too (socket(7)), as TCPStore does.

    Raises OSError with errno EADDRINUSE when another process listens there.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((LOOPBACK, port))
    except OSError:
        held.close()
        raise
    return held


def is_complaint(tail: Sequence[Line]) -> bool:
    """Return whether these lines report a port in use."""
    return any(_IN_USE.search(line) for _, line in tail)
