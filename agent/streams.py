"""A pipe that a rank or the launcher writes to: read, split into lines, kept as a tail, handed to the outbox."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections import deque
from typing import Deque

from . import blame
from .lines import Splitter
from .loop import Loop
from .outbox import Outbox

READ_BYTES = 256 << 10
F_SETPIPE_SZ = 1031  # linux/fcntl.h; Python knows it from 3.10
PIPE_BYTES = 1 << 20  # an unprivileged process may ask for this much (pipe(7))
PULLS = 64  # a grandchild that never stops writing must not hold up the rank's end


class Stream:
    """One pipe. `rank` is -1 for the launcher's."""

    def __init__(self, fd: int, *, rank: int, loop: Loop, outbox: Outbox) -> None:
        self.rank, self.is_open = rank, True
        self.tail: Deque[blame.Line] = deque(maxlen=blame.TAIL_LINES)
        self._fd, self._loop, self._outbox = fd, loop, outbox
        self._splitter = Splitter()
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
        loop.watch(fd, ready=self.read)

    def read(self) -> int:
        """Takes what is there; returns how many bytes that was."""
        if not self.is_open:  # closed in this same turn: its number may be another's by now
            return 0
        try:
            piece = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            piece = b""
        if not piece:
            self.close()
            return 0
        self._take(self._splitter.feed(piece, now=time.monotonic()))
        return len(piece)

    def pull(self) -> None:
        """Takes all that was written until now. After it the tail is complete."""
        for _ in range(PULLS):
            if not self.is_open or not self.read():
                break
        self._take(self._splitter.end())

    def due(self) -> float | None:
        """When `tick` is wanted, on the monotonic clock: the wall clock may jump."""
        return self._splitter.due()

    def tick(self) -> None:
        self._take(self._splitter.tick(now=time.monotonic()))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._take(self._splitter.end())

    def _take(self, lines: list[bytes]) -> None:
        if lines:
            now = time.time()
            self.tail.extend((now, line[: blame.TAIL_LINE_BYTES]) for line in lines[-blame.TAIL_LINES :])
            self._outbox.lines(self.rank, lines=lines, at=now)
