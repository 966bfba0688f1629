"""A reader's position in a job's log: one line number per stream, as opaque text. Pure.

A stream is what one replica printed for one rank. Segment ids are assigned before their transaction commits, so a
smaller id may appear after a larger one; `floor` therefore moves only to ids that are old enough to be settled.
"""

import base64
import json
import zlib
from dataclasses import dataclass, field, replace
from itertools import accumulate

from common.errors import Problem, Unreadable

SETTLED_SECONDS = 30  # no ingest transaction takes that long

MOST_STREAMS = 16_384  # more do not fit into a URL
MOST_BYTES = 2**18  # for the streams, unpacked
INTEGER = 2**31 - 1  # the largest attempt or rank that their columns hold
Stream = tuple[int, int]  # replica row id, rank (-1: the launcher)


@dataclass(frozen=True)
class Cursor:
    """`next` line of each stream; segments with an id up to `floor` are all read; `top` was the largest id at `top_at`."""

    attempt: int
    next: dict[Stream, int] = field(default_factory=dict)
    floor: int = 0
    top: int = 0
    top_at: float = 0.0

    def read_to(self, largest: int, now: float) -> "Cursor":
        """Return the cursor after everything up to the segment id `largest` was delivered. `now` in seconds."""
        if now - self.top_at < SETTLED_SECONDS:
            return self
        return replace(self, floor=self.top, top=max(largest, self.top), top_at=now)

    def encode(self) -> str:
        # In columns, the first two as differences: so that 1,024 ranks fit into a URL (controlplane/edge/limits.py).
        streams = sorted(self.next)
        columns = [_steps([one[0] for one in streams]), _steps([one[1] for one in streams])]
        columns.append([self.next[stream] for stream in streams])
        data = json.dumps([self.attempt, self.floor, self.top, round(self.top_at), *columns], separators=(",", ":"))
        return base64.urlsafe_b64encode(zlib.compress(data.encode())).decode().rstrip("=")


def decode(text: str) -> Cursor:
    """Return the cursor in `text`. Raises Unreadable for anything that `encode` did not make."""
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        attempt, floor, top, top_at, *rest = json.loads(zlib.decompressobj().decompress(packed, MOST_BYTES))
        flat = _rows(*rest) if len(rest) == 3 else rest[0]
        if len(flat) > MOST_STREAMS:
            raise ValueError(f"{len(flat)} streams")
        places = {(_whole(a), _whole(b, least=-1, most=INTEGER)): _whole(c) for a, b, c in flat}
        return Cursor(_whole(attempt, most=INTEGER), places, _whole(floor), _whole(top), float(_whole(top_at)))
    except (ValueError, TypeError, IndexError, RecursionError, zlib.error) as error:
        raise Unreadable(Problem("cursor", text[:40], "is not a valid cursor; omit it to start again")) from error


def _whole(value: object, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """Return a number that a column can hold. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is not a number of a cursor")
    return value


def _steps(numbers: list[int]) -> list[int]:
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]


def _rows(replicas: list[int], ranks: list[int], lines: list[int]) -> list[tuple[int, int, int]]:
    return list(zip(accumulate(replicas), accumulate(ranks), lines, strict=True))
