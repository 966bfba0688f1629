"""Show upload progress on one line of a terminal; nothing when not on a terminal, nor for quick uploads."""

from __future__ import annotations

import sys
import time
from typing import Callable, TextIO

WAIT_SECONDS = 0.5  # quicker uploads need no progress display
STEP_SECONDS = 0.1
WIDTH = 24


class Upload:
    """Call it with the bytes sent and the bytes in total; `close` clears the line for what comes next."""

    def __init__(self, to: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._to = sys.stderr if to is None else to
        self._clock, self._began, self._shown_at = clock, clock(), 0.0
        self._is_shown = False

    def __call__(self, sent: int, total: int) -> None:
        now = self._clock()
        is_due = now - self._began >= WAIT_SECONDS and now - self._shown_at >= STEP_SECONDS
        if not self._to.isatty() or not (is_due or (self._is_shown and sent >= total)):
            return
        self._shown_at, self._is_shown = now, True
        self._to.write(f"\r\x1b[K{line(sent, total)}")
        self._to.flush()

    def close(self) -> None:
        if self._is_shown:
            self._to.write("\r\x1b[K")
            self._to.flush()
        self._is_shown = False


def line(sent: int, total: int) -> str:
    filled = WIDTH * sent // max(1, total)
    return f"Sending code [{'#' * filled}{'.' * (WIDTH - filled)}] {sent / 2**20:.1f} of {total / 2**20:.1f} MiB"
