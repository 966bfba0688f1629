"""Reduce log text once a budget is used up: keep the last lines of each minute and of each rank. Pure.

Nothing is lost silently: dropped lines become gaps with their numbers, like lines that an agent could not keep.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from .batch import MAX_SEGMENT_RAW_BYTES

Segment = dict[str, Any]  # as in translate.RowChanges: a row of plain values

THINNED_UNTIL, ENDS_UNTIL = (
    110,
    120,
)  # percent of the budget, to make it a bound: a fifth above it nothing more is kept
MINUTE_BYTES = 4096  # of text, per stream and minute
END_BYTES = 65536  # of text before the end of a rank: its traceback
MOST_UNPACKED = MAX_SEGMENT_RAW_BYTES  # per batch: one that unpacks to gigabytes becomes a gap


class Level(IntEnum):
    """How much of the text is kept. Of two levels the smaller one applies."""

    NOTHING = 0
    ENDS = 1  # the last lines before a rank's end
    THINNED = 2  # also the last lines of each minute
    FULL = 3


def level(used: int, budget: int) -> Level:
    """Return the level. Bytes as stored; a budget of 0 means no limit."""
    if budget <= 0 or used < budget:
        return Level.FULL
    if 100 * used < THINNED_UNTIL * budget:
        return Level.THINNED
    return Level.ENDS if 100 * used < ENDS_UNTIL * budget else Level.NOTHING


@dataclass
class Kept:
    """Segments with their offsets in `data`, and whether text was dropped."""

    segments: list[Segment] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    is_cut: bool = False

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)

    def add(self, segment: Segment, blob: bytes) -> None:
        self.segments.append({**segment, "offset": self.size, "size_bytes": len(blob)})
        self.parts.append(blob)
        self.size += len(blob)

    def leave_out(self, segment: Segment) -> None:
        self.segments.append({**segment, "is_text": False, "offset": 0, "size_bytes": 0})
        self.is_cut = True


def thin(
    segments: Iterable[Segment], data: bytes, *, level: Level, last_at: Mapping[int, float], ended: frozenset[int]
) -> Kept:
    """Return the segments reduced to `level`.

    `last_at`: when each stream's last line before this batch was printed, in seconds since the epoch. `ended`: ranks
    whose end this batch reports.
    """
    segments, kept, unpacked = list(segments), Kept(), 0
    if level is Level.FULL and sum(one["size_bytes"] for one in segments) == len(data):
        return Kept(segments, [data])  # nearly always
    before = dict(last_at)
    last_of = {one["rank"]: one["first_line"] for one in segments if one["is_text"]}
    for one in segments:
        rank = one["rank"]
        is_end = rank in ended and one["first_line"] == last_of.get(rank)
        is_new_minute = one["last_at"] // 60 != before.get(rank, 0.0) // 60
        before[rank] = one["last_at"]
        if not one["is_text"]:
            kept.segments.append(one)
            continue
        blob = data[one["offset"] : one["offset"] + one["size_bytes"]]
        most = _most(level, is_end=is_end, is_new_minute=is_new_minute)
        if most is None:
            kept.add(one, blob)
            continue
        unpacked += one["raw_bytes"] if most else 0
        _keep_end(one, blob, most=most if unpacked <= MOST_UNPACKED else 0, kept=kept)
    return kept


def _most(level: Level, *, is_end: bool, is_new_minute: bool) -> int | None:
    """Return how many bytes of a segment's text are kept; None for all of it."""
    if level is Level.FULL:
        return None
    if is_end and level >= Level.ENDS:
        return END_BYTES
    return MINUTE_BYTES if is_new_minute and level is Level.THINNED else 0


def _keep_end(segment: Segment, blob: bytes, *, most: int, kept: Kept) -> None:
    text = _text(segment, blob) if most else b""
    if text and len(text) <= most and len(blob) <= most:
        kept.add(segment, blob)
        return
    end = text[-most:] if most else b""
    if len(text) > most:
        end = end[end.find(b"\n") + 1 :]  # whole lines
    lines = end.count(b"\n")
    if not lines or lines >= segment["lines"]:
        kept.leave_out(segment)
        return
    at = _time(end, segment)
    first = {"lines": segment["lines"] - lines, "raw_bytes": segment["raw_bytes"] - len(end), "last_at": at}
    rest = {"first_line": segment["first_line"] + first["lines"], "lines": lines, "raw_bytes": len(end), "first_at": at}
    kept.leave_out({**segment, **first})
    kept.add({**segment, **rest}, zlib.compress(end))


def _text(segment: Segment, blob: bytes) -> bytes:
    """Return a segment's text; empty if it does not match its row."""
    try:
        text = zlib.decompressobj().decompress(blob, segment["raw_bytes"] + 1)
    except zlib.error:
        return b""
    is_true = len(text) == segment["raw_bytes"] and text.endswith(b"\n") and text.count(b"\n") == segment["lines"]
    return text if is_true else b""


def _time(text: bytes, segment: Segment) -> float:
    """Return the time of the text's first line, within the segment's bounds."""
    stamp = text.partition(b" ")[0]
    at = int(stamp) / 1000 if stamp.isdigit() and len(stamp) < 14 else segment["last_at"]
    return float(min(max(at, segment["first_at"]), segment["last_at"]))
