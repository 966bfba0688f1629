"""A pipe that a rank or the launcher writes to: read, split into lines, kept as a tail, passed to the outbox."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable

from ..loop import Loop
from . import blame
from .journal import Journal
from .lines import Splitter
from .outbox import Outbox
from .tail import Tail

F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032  # linux/fcntl.h; Python has them from 3.10
PIPE_BYTES = 1 << 20  # an unprivileged process may request this much (pipe(7))
PULLS = 64  # a grandchild that never stops writing must not delay the rank's end


class Stream:
    """One pipe. `rank` is -1 for the launcher's, of which `author` may know the rank of a line."""

    def __init__(
        self,
        fd: int,
        *,
        rank: int,
        loop: Loop,
        outbox: Outbox,
        journal: Journal,
        author: Callable[[bytes], int | None] | None = None,
        on_text: Callable[[bytes], None] | None = None,
    ) -> None:
        """`author` knows the rank of the launcher's lines; `on_text` is called with whole lines as they come."""
        self._on_text = on_text
        self.rank, self.is_open, self._author = rank, True, author
        self._tail = Tail()
        self._fd, self._loop, self._outbox, self._journal = fd, loop, outbox, journal
        self._splitter = Splitter()
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
        self._room = fcntl.fcntl(fd, F_GETPIPE_SZ)
        self._number = journal.add(fd, rank=rank, splitter=self._splitter)
        loop.watch(fd, ready=self.read)

    @property
    def tail(self) -> list[blame.Line]:
        """Return its last lines, which show why it ended.

        The last tracebacks precede them where those are further back.
        """
        lines, error = self._tail.lines(), self._tail.error()
        is_far = error and not any(blame.TRACEBACK in line for _, line in lines)
        return error + lines if is_far else lines

    def read(self) -> float:
        """Read what is there; return how much of the pipe that was, 0 to 1."""
        if not self.is_open:  # closed in this same turn: its descriptor may be reused by now
            return 0
        try:
            piece = self._journal.take(self._fd, stream=self._number)
        except BlockingIOError:
            return 0
        except OSError:
            piece = b""
        if not piece:
            self.close()
            return 0
        self._take(self._splitter.feed(piece, now=time.monotonic()))
        return len(piece) / self._room

    def pull(self) -> None:
        """Read all that was written until now. After it the tail is complete."""
        for _ in range(PULLS):
            if not self.is_open or not self.read():
                break
        self._take(self._splitter.end())

    def due(self) -> float | None:
        """Return when `tick` should be called, on the monotonic clock: the wall clock may jump."""
        return self._splitter.due()

    def tick(self) -> None:
        """Show an unfinished line that is due, unless its end waits in the pipe: the agent itself may have been late."""
        due = self.due()
        if due is not None and time.monotonic() >= due:
            self.read()
            self._take(self._splitter.tick(now=time.monotonic()))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._take(self._splitter.end())
            self._journal.drop(self._number)

    def _take(self, text: bytes) -> None:
        if text:
            now, count = time.time(), text.count(b"\n")
            self._tail.add(text, count=count, at=now)
            if self._on_text is not None:
                self._on_text(text)
            for rank, part in self._parts(text):
                self._outbox.text(rank, text=part, lines=part.count(b"\n"), at=now)

    def _parts(self, text: bytes) -> Iterable[tuple[int, bytes]]:
        """Return the text by the rank that each line belongs to, in order."""
        if self._author is None:
            return [(self.rank, text)]
        parts: list[tuple[int, bytes]] = []
        for line in text.splitlines(keepends=True):
            found = self._author(line)
            rank = self.rank if found is None else found
            if parts and parts[-1][0] == rank:
                parts[-1] = rank, parts[-1][1] + line
            else:
                parts.append((rank, line))
        return parts
