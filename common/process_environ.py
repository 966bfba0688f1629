"""Environments of processes that may be a job's. Knows no Django: bin/demo's supervisor asks too."""

import os
from collections.abc import Iterator

# execve(2) takes no more. A process may say that its environment is any memory it has (prctl(2), PR_SET_MM), and of any size.
MOST_BYTES = 6 << 20
PIECE_BYTES = 256 << 10


def environs() -> Iterator[tuple[int, bytes]]:
    """Of each process that we may ask: its id, and NAME=value pairs with a NUL before and behind each."""
    for pid in pids():
        if found := environ(pid):
            yield pid, found


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environ(pid: int) -> bytes:
    """Empty where it cannot be read, or is no environment that a program was started with."""
    pieces, size = [b"\0"], 0
    try:
        file = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while size <= MOST_BYTES and (piece := os.read(file, PIECE_BYTES)):
                pieces.append(piece)
                size += len(piece)
        finally:
            os.close(file)
    except OSError:
        return b""
    return b"" if size > MOST_BYTES or not size else b"".join([*pieces, b"\0"])
