"""Read environments of processes that may belong to a job. Imports no Django: bin/demo's supervisor uses it too."""

import os
from collections.abc import Iterator

# execve(2) takes no more. But a process may declare any of its memory as its environment (prctl(2), PR_SET_MM), of any
# size.
MOST_BYTES = 6 << 20
PIECE_BYTES = 256 << 10


def environs() -> Iterator[tuple[int, bytes]]:
    """Yield, for each readable process, its id and its NAME=value pairs, each preceded and followed by a NUL."""
    for pid in pids():
        if found := environ(pid):
            yield pid, found


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environ(pid: int) -> bytes:
    """Return a process's environment; empty if unreadable, or too large to be one that a program was started with."""
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
