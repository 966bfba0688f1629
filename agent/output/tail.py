"""The last lines of a stream, kept as the pieces in which they came: most of them are never read.

The last traceback stays too, however many lines follow it: it is what users want to read.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, List, Tuple

from .blame import TAIL_LINE_BYTES, TAIL_LINES, TRACEBACK, Line

Piece = Tuple[float, bytes, int]  # (when it came, its lines with their newlines, how many)
BEFORE_LINES = 4  # of a traceback: they show whether it belongs to a thread, or to an error before it
KEPT_LINES = 400  # from its first line on


class Tail:
    """At least the last TAIL_LINES lines. Bounded: of long lines only the beginning is kept."""

    def __init__(self) -> None:
        self._pieces: Deque[Piece] = deque()
        self._count = 0
        self._error: List[Line] = []  # from before the last tracebacks on
        self._wanted = 0  # lines that still belong to it

    def add(self, text: bytes, *, count: int, at: float) -> None:
        if self._wanted or TRACEBACK in text:
            self._keep(text, at)
        if len(text) > count * TAIL_LINE_BYTES:
            text = b"".join([line + b"\n" for line in _last(text)])
            count = text.count(b"\n")
        self._pieces.append((at, text, count))
        self._count += count
        while self._count - self._pieces[0][2] >= TAIL_LINES:
            self._count -= self._pieces.popleft()[2]

    def lines(self) -> list[Line]:
        found = [(at, line) for at, text, _ in self._pieces for line in _last(text)]
        return found[-TAIL_LINES:]

    def error(self) -> list[Line]:
        """Return the last tracebacks and what followed them; empty where there were none."""
        return list(self._error)

    def _keep(self, text: bytes, at: float) -> None:
        begin = 0
        if not self._wanted:  # the previous one was complete: this is another
            begin = _lines_before(text, text.find(TRACEBACK))
            self._error = [] if begin else self.lines()[-BEFORE_LINES:]
        is_before = not self._wanted
        for line in text[begin:].split(b"\n")[:-1]:
            if TRACEBACK in line:
                self._wanted, is_before = KEPT_LINES, False
            if self._wanted or is_before:
                self._error.append((at, line[:TAIL_LINE_BYTES]))
                self._wanted = max(0, self._wanted - 1)
        if len(self._error) > 2 * KEPT_LINES:
            del self._error[:-KEPT_LINES]


def _lines_before(text: bytes, at: int) -> int:
    """Return where the line begins that is BEFORE_LINES lines before this offset."""
    begin = at
    for _ in range(BEFORE_LINES + 1):
        begin = text.rfind(b"\n", 0, max(begin, 0))
        if begin < 0:
            return 0
    return begin + 1


def _last(text: bytes) -> list[bytes]:
    lines = text.rsplit(b"\n", TAIL_LINES + 1)[-TAIL_LINES - 1 : -1]
    return [line[:TAIL_LINE_BYTES] for line in lines]
