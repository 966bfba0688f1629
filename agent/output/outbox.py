"""Collect the next batch: lines are gathered into segments, points into series, states as they come.

Updates leave fast while a person is likely waiting for them (a start, an end, a line after a silence) and at a slow
pace in a steady stream: every batch costs the control plane a transaction, and training a slice of its cores.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

from ..wire import batch as form
from .journal import Journal
from .spool import Spool

FULL_BYTES = 1 << 20  # of text: then a batch leaves whatever its pace
FULLEST_BYTES = 4 << 20  # while batches wait: a few large ones are cheaper for both sides than many small ones
GATHER_SECONDS = 0.02  # after a silence: a print is seldom alone
EAGER_SECONDS = 0.25  # between the first batches after a silence, and before one that reports a start or an end
STEADY_SECONDS = 2.5
EAGER_BATCHES = 12
SILENCE_SECONDS = 5.0  # after this long without updates the next one is sent eagerly again
HEARTBEAT_SECONDS = 10.0  # an empty batch fetches commands when there is nothing to report
SLOW_HOLDS_SECONDS = 30.0
POINTS_LIMIT = 500  # of one rank in one batch; above it every second one is left out
NUMBERS_LIMIT = 50_000  # of all points in one batch, some 4 MB of its 8; above it every second point is left out, too
NAMES_LIMIT = 50  # of one point, of 60 characters each: the control plane stores no more
NAME_LIMIT = 60
_BACKLOG = ((200, 5.0), (20, 1.0))  # batches waiting -> seconds between: an outage should not create a million files


class Segment:
    """Consecutive lines of one rank."""

    def __init__(self, *, first_line: int, at: float) -> None:
        self.first_line, self.first_at, self.last_at = first_line, at, at
        self.lines = self.raw_bytes = 0
        self.parts: list[bytes] = []

    def add(self, text: bytes, *, lines: int, at: float) -> None:
        """Append whole lines, each with its newline."""
        stamp = b"%d " % int(at * 1000)
        text = stamp + text[:-1].replace(b"\n", b"\n" + stamp) + b"\n"
        if not text.isascii():
            text = text.decode("utf-8", "replace").encode()
        self.parts.append(text)
        self.lines += lines
        self.raw_bytes += len(text)
        self.last_at = at


class Outbox:
    """Filled by the agent's threads, flushed into the spool by its main one."""

    def __init__(
        self, spool: Spool, *, journal: Journal | None = None, on_text: Callable[[int, bytes, int], None] | None = None
    ) -> None:
        self._spool, self._journal, self._on_text = spool, journal, on_text
        self._lock = threading.RLock()
        self._items: list[dict[str, Any]] = []
        self._segments: dict[int, Segment] = {}
        self._points: dict[int, list[list[Any]]] = {}
        self._numbers = 0
        self._lines: dict[int, int] = {}  # rank -> lines so far
        self._seqs: dict[int, int] = {}  # rank -> segments so far
        self._bytes = 0
        self._news_since: float | None = None
        self._flushed_at = time.monotonic() - EAGER_SECONDS
        self._streak = 0  # batches since the last silence
        self._is_urgent = False
        self._slow_seconds = self._slow_until = 0.0

    def resume(self, *, lines: dict[int, int], segments: dict[int, int]) -> None:
        """Continue counting from what was sent before: rank -> lines, and rank -> segments."""
        self._lines, self._seqs = dict(lines), dict(segments)

    def begin_journal(self) -> None:
        """Keep what is read from now on in a journal, for the batch that comes next."""
        self._begin_journal(self._spool.next_seq)

    def text(self, rank: int, *, text: bytes, lines: int, at: float) -> None:
        """Add whole lines, each with its newline. `at`: when they were read, seconds since the epoch."""
        with self._lock:
            first_line = self._lines.get(rank, 0)
            segment = self._segments.setdefault(rank, Segment(first_line=first_line, at=at))
            before = segment.raw_bytes
            segment.add(text, lines=lines, at=at)
            self._bytes += segment.raw_bytes - before
            self._lines[rank] = first_line + lines
            self._note_news()
        if self._on_text:
            self._on_text(rank, text, first_line)

    def item(self, kind: str, **values: Any) -> None:
        with self._lock:
            self._items.append({"kind": kind, **values})
            self._is_urgent |= kind in ("replica", "rank")
            self._note_news()

    def newest(self, kind: str, **values: Any) -> None:
        """Add an item in place of an earlier one of its kind: only the last counts, and any process may send many."""
        with self._lock:
            self._items = [one for one in self._items if one["kind"] != kind]
            self.item(kind, **values)

    def point(self, rank: int, *, point: list[Any]) -> None:
        """Add a metrics point: [time, step or None, {name: number}]."""
        at, step, numbers = point
        numbers = {name[:NAME_LIMIT]: number for name, number in list(numbers.items())[:NAMES_LIMIT]}
        with self._lock:
            points = self._points.setdefault(rank, [])
            points.append([at, step, numbers])
            self._numbers += len(numbers)
            if len(points) > POINTS_LIMIT:
                self._thin([points])
            if self._numbers > NUMBERS_LIMIT:
                self._thin(list(self._points.values()))
            self._note_news()

    def _thin(self, series: list[list[list[Any]]]) -> None:
        """Keep the first and the last point of each series, and every second one of the others."""
        for points in series:
            del points[1:-1:2]
        self._numbers = sum(len(one[2]) for points in self._points.values() for one in points)

    def slow(self, seconds: float) -> None:
        """Flush no more often than this, for a while: a control plane under pressure repeats it in every answer."""
        self._slow_seconds = min(max(0.0, seconds), HEARTBEAT_SECONDS)
        self._slow_until = time.monotonic() + SLOW_HOLDS_SECONDS

    def due(self) -> float:
        """Return when `flush` should be called next, on the monotonic clock."""
        if self._bytes >= self._full_bytes():
            return 0.0
        if self._news_since is None:
            return self._flushed_at + HEARTBEAT_SECONDS
        return max(self._news_since + GATHER_SECONDS, self._flushed_at + self._between())

    def flush(self) -> None:
        """Put everything into the spool as one batch; an empty one is a heartbeat."""
        with self._lock:
            self._close_segments()
            for rank, points in self._points.items():
                self._items.append({"kind": "metrics", "rank": rank, "points": points})
            items, self._items, self._points, self._numbers = self._items, [], {}, 0
            now = time.monotonic()
            self._streak = 0 if now - self._flushed_at > SILENCE_SECONDS else self._streak + 1
            self._bytes, self._news_since, self._is_urgent = 0, None, False
            self._flushed_at = now
        blobs = [item.pop("blob") for item in items if item["kind"] == "log"]
        # Begin the new journal first and delete the old one last: whenever a kill comes, one journal has what is in no
        # batch.
        self._begin_journal(self._spool.next_seq + 1)
        self._spool.put(items, blobs=blobs, kept=self._journal.forget if self._journal else None)

    def _begin_journal(self, seq: int) -> None:
        if self._journal:
            self._journal.begin(seq, lines=self._lines, segments=self._seqs)

    def has_news(self) -> bool:
        return self._news_since is not None

    def _between(self) -> float:
        waiting = len(self._spool)
        pace = EAGER_SECONDS if self._is_urgent or self._streak < EAGER_BATCHES else STEADY_SECONDS
        backlog = next((seconds for batches, seconds in _BACKLOG if waiting > batches), pace)
        return max(backlog, self._slowness())

    def _full_bytes(self) -> int:
        return FULLEST_BYTES if self._slowness() else min(FULLEST_BYTES, FULL_BYTES * (1 + len(self._spool)))

    def _slowness(self) -> float:
        return self._slow_seconds if time.monotonic() < self._slow_until else 0.0

    def _note_news(self) -> None:
        if self._news_since is None:
            self._news_since = time.monotonic()

    def _close_segments(self) -> None:
        for rank, segment in self._segments.items():
            self._seqs[rank] = self._seqs.get(rank, 0) + 1
            blob = form.compressed(b"".join(segment.parts))
            self._items.append(
                {"kind": "log", "rank": rank, "seq": self._seqs[rank], "first_line": segment.first_line,
                 "lines": segment.lines, "first_at": segment.first_at, "last_at": segment.last_at,
                 "raw_bytes": segment.raw_bytes, "bytes": len(blob), "blob": blob}
            )  # fmt: skip
        self._segments = {}
