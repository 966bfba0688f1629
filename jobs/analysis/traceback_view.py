"""Prepare a traceback for display: the user's own frames apart from library frames, which may be folded. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .tracebacks import FRAME, is_library

_IN_GROUP = re.compile(r"^(?:\s*\|)+ ")  # what an ExceptionGroup draws before the lines of the errors within it
_RULE = re.compile(r"^\s*\+-")  # and between them
_BOX = "│┃|╭╰╮╯─┄"


@dataclass(frozen=True)
class TracebackPart:
    """Lines of a traceback displayed alike. `look`: "own" (the user's), "library" (may be folded) or "words"."""

    look: str
    lines: tuple[str, ...]

    @property
    def frames(self) -> int:
        return sum(bool(FRAME.match(line)) for line in self.lines)


def shown(lines: Iterable[str]) -> list[TracebackPart]:
    """Group a traceback's lines by how they are displayed."""
    found: list[tuple[str, list[str]]] = []
    look = "words"
    for line in lines:
        look = _look(line, look)
        if found and found[-1][0] == look:
            found[-1][1].append(line)
        else:
            found.append((look, [line]))
    return [TracebackPart(one, tuple(some)) for one, some in found]


def _look(line: str, before: str) -> str:
    if frame := FRAME.match(line.lstrip(_BOX + "+ ")):
        return "library" if is_library(frame[1]) else "own"
    is_code = _IN_GROUP.sub("", line).startswith("    ") and not _RULE.match(line)
    return before if before != "words" and is_code else "words"
