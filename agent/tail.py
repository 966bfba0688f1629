"""The last lines of a stream, kept as the pieces in which they came: most of them are never looked at."""

from __future__ import annotations

from collections import deque
from typing import Deque, Tuple

from .blame import TAIL_LINE_BYTES, TAIL_LINES, Line

Piece = Tuple[float, bytes, int]  # when it came, its lines with their ends, how many


class Tail:
    """At least the last TAIL_LINES lines. Bounded: of long lines only the beginning is kept."""

    def __init__(self) -> None:
        self._pieces: Deque[Piece] = deque()
        self._count = 0

    def add(self, text: bytes, *, count: int, at: float) -> None:
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


def _last(text: bytes) -> list[bytes]:
    lines = text.rsplit(b"\n", TAIL_LINES + 1)[-TAIL_LINES - 1 : -1]
    return [line[:TAIL_LINE_BYTES] for line in lines]
