"""Read back the lines that an agent printed into its container's log (docs/wire.md, section 5). Pure.

Each has its rank and number, so that a known line is skipped, and a missing one leaves a gap.
"""

import re
import zlib
from calendar import timegm
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import strptime

from jobs.core.batch import LAUNCHER, Batch, Item

from .translate import StreamPosition

MOST_BYTES = 4 * 2**20  # of text per read
MOST_MISSING = 2**31 - 1  # lines of one gap, the limit of its column
LEVEL = 1  # of zlib, as used by agents
# kubelet: the time as RFC 3339 with up to nine digits, then the line as the container wrote it.
_LINE = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z \[(-1|\d{1,9}):(\d{1,15})\] (.*)", re.DOTALL)


@dataclass
class _Run:
    """Consecutive lines of one rank."""

    rank: int
    first_line: int
    lines: list[tuple[float, bytes]] = field(default_factory=list)


class ContainerLogReader:
    """Reads a container's log line by line, keeping the lines after `positions`."""

    def __init__(self, positions: Mapping[int, StreamPosition], *, most_bytes: int = MOST_BYTES):
        self._next = {LAUNCHER: 0} | {rank: position.line for rank, position in positions.items()}
        self._most_bytes, self._bytes = most_bytes, 0
        self._runs: dict[int, _Run] = {}
        self._items: list[Item] = []
        self.has_hole = False  # lines before the present ones are missing
        self.began: dict[int, float] = {}  # ranks whose first line is included, and its time

    def take(self, raw: bytes) -> bool:
        """Process one line, without its newline. Return whether to continue."""
        found = _LINE.fullmatch(raw)
        if found is None:
            return True  # not a rank's: printed by another program of the container
        rank, number = int(found[3]), int(found[4])
        expected = self._next.get(rank)
        if expected is None or not expected <= number <= expected + MOST_MISSING:
            return True
        at = _seconds(found[1].decode(), (found[2] or b"0").decode())
        if number > expected:
            self._miss(rank, expected, number - expected, at=at)
        if number == 0:
            self.began[rank] = at
        self._keep(rank, number, at, text=found[5])
        return self._bytes < self._most_bytes

    def items(self) -> tuple[Item, ...]:
        """Return the items that the agent itself would have sent."""
        for rank in list(self._runs):
            self._close(rank)
        return tuple(self._items)

    def _keep(self, rank: int, number: int, at: float, *, text: bytes) -> None:
        run = self._runs.setdefault(rank, _Run(rank, number))
        run.lines.append((at, text))
        self._next[rank] = number + 1
        self._bytes += len(text) + 15  # with its time, as it is stored

    def _miss(self, rank: int, first: int, lines: int, *, at: float) -> None:
        self._close(rank)
        self.has_hole = True
        self._items.append(_item("gap", rank, first, lines=lines, times=(at, at), raw_bytes=0))

    def _close(self, rank: int) -> None:
        run = self._runs.pop(rank, None)
        if run:
            text = b"".join(b"%d %s\n" % (int(at * 1000), line) for at, line in run.lines)
            text = text if text.isascii() else text.decode("utf-8", "replace").encode()
            times = run.lines[0][0], run.lines[-1][0]
            self._items.append(
                _item(
                    "log",
                    rank,
                    run.first_line,
                    lines=len(run.lines),
                    times=times,
                    raw_bytes=len(text),
                    blob=_packed(text),
                )
            )


def without_stored_lines(batch: Batch, positions: Mapping[int, StreamPosition]) -> Batch:
    """Return a batch without the lines that were read from its agent's container log meanwhile.

    An item whose text cannot be read is left as it is, and refused like any other.
    """
    return replace(batch, items=tuple(_trimmed(batch.items, positions)))


def _trimmed(items: Iterable[Item], positions: Mapping[int, StreamPosition]) -> Iterable[Item]:
    for item in items:
        stored = _stored_lines(item, positions)
        first, lines = item.fields.get("first_line"), item.fields.get("lines")
        if not (isinstance(first, int) and isinstance(lines, int)) or first >= stored:
            yield item
        elif first + lines > stored:
            yield _cut(item, stored - first)


def _stored_lines(item: Item, positions: Mapping[int, StreamPosition]) -> int:
    """Return how many lines of the item's stream are stored."""
    rank = item.fields.get("rank")
    if item.kind not in ("log", "gap") or not isinstance(rank, int):
        return 0
    return positions.get(rank, StreamPosition()).line


def _cut(item: Item, count: int) -> Item:
    """Return the item without its first `count` lines."""
    first, left = item.number("first_line") + count, item.number("lines") - count
    if item.kind == "gap":
        return replace(item, fields={**item.fields, "first_line": first, "lines": left})
    try:
        text = zlib.decompressobj().decompress(item.blob, item.number("raw_bytes") + 1)
    except zlib.error:
        return item
    rest = text.split(b"\n", count)[-1]
    blob = _packed(rest)
    rest_fields = {"first_line": first, "lines": left, "raw_bytes": len(rest), "bytes": len(blob)}
    return replace(item, fields={**item.fields, **rest_fields}, blob=blob)


def _item(
    kind: str, rank: int, first: int, *, lines: int, times: tuple[float, float], raw_bytes: int, blob: bytes = b""
) -> Item:
    fields = {"rank": rank, "first_line": first, "lines": lines, "first_at": times[0], "last_at": times[1]}
    return Item(kind, {"kind": kind, **fields, "raw_bytes": raw_bytes, "bytes": len(blob)}, blob)


def _packed(text: bytes) -> bytes:
    return zlib.compress(text, LEVEL)


def _seconds(whole: str, fraction: str) -> float:
    try:
        return float(timegm(strptime(whole, "%Y-%m-%dT%H:%M:%S")) + int(fraction) / 10.0 ** len(fraction))
    except ValueError:  # such as a month 13
        return 0.0
