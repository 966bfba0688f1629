"""Where the lines of a log are stored: rows that refer to slices of files, and the lines in them.

Rows are read as tuples with one statement per page: an open page and a follower query every second for every running
job.
"""

import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from django.db import connection

from common.db import sql
from jobs.core.batch import LAUNCHER, MAX_SEGMENT_RAW_BYTES
from jobs.core.cursor import Cursor, Stream

from . import storage

BLOCK = 4096  # characters

_COLUMNS = sql.load("jobs/sql/parts/segment_columns.sql")
_OF_SOURCE = sql.load("jobs/sql/parts/segments_of_source.sql")
_UNREAD = sql.load("jobs/sql/unread_segments.sql", columns=_COLUMNS, of_source=_OF_SOURCE)
_NEWEST = sql.load("jobs/sql/newest_segments.sql", columns=_COLUMNS, of_source=_OF_SOURCE)
_SINCE = sql.load("jobs/sql/segments_since.sql", columns=_COLUMNS, of_source=_OF_SOURCE)
_LAST = sql.load("jobs/sql/last_segments.sql", columns=_COLUMNS)
_ENDS = sql.load("jobs/sql/stream_ends.sql")


class Unreadable(Exception):
    """The bytes exist but do not match their row."""


class LogSource(NamedTuple):
    """Whose lines: everybody's; only one rank's (LAUNCHER: those of no rank), one replica's, or both together."""

    rank: int | None = None
    replica: tuple[str, int] | None = None  # its role, and its number within it

    @property
    def given(self) -> dict[str, str | int | None]:
        """The parameters of a statement."""
        role, index = self.replica or (None, None)
        return {"rank": self.rank, "role": role, "index": index}


EVERYBODY = LogSource()


class Segment(NamedTuple):
    """A row. Without a path it is a gap: lines that were lost in transit, with their numbers."""

    id: int
    replica: int
    rank: int
    first_line: int
    lines: int
    first_at: datetime
    last_at: datetime
    raw_bytes: int
    path: str
    offset: int
    size_bytes: int
    replica_name: str  # role and number, such as worker-0

    @property
    def stream(self) -> Stream:
        return self.replica, self.rank

    @property
    def end(self) -> int:
        return self.first_line + self.lines

    @property
    def shown(self) -> int:
        """How many lines a reader sees of it: a gap is one."""
        return self.lines if self.path else 1


class Unread(NamedTuple):
    """The rows in one snapshot."""

    attempt: int
    is_finished: bool
    collected_at: datetime | None  # when the log was deleted, for its age or by a user
    segments: list[Segment]


def unread(*, job: int, source: LogSource, place: Cursor, limit: int) -> Unread:
    """Return segments with lines after the cursor, in order of time."""
    streams = list(place.next)
    given = {
        "job": job, **source.given, "attempt": place.attempt, "floor": place.floor, "limit": limit,
        "replicas": [replica for replica, _ in streams], "ranks": [number for _, number in streams],
        "lines": list(place.next.values()),
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_UNREAD, given)
        rows = cursor.fetchall()
    if not rows:  # the job itself is gone
        return Unread(place.attempt, True, None, [])
    attempt, is_finished, collected_at = rows[0][:3]
    found = [Segment(*row[3:]) for row in rows if row[3] is not None]
    return Unread(attempt, is_finished, collected_at, found)


def newest(*, job: int, source: LogSource, attempt: int, limit: int) -> list[Segment]:
    """Return the segments that arrived last, newest first."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, {"job": job, **source.given, "attempt": attempt, "limit": limit})
        return [Segment(*row) for row in cursor.fetchall()]


def last(*, stream: Stream, limit: int) -> list[Segment]:
    """Return the end of one stream, its last segment first."""
    replica, rank = stream
    with connection.cursor() as cursor:
        cursor.execute(_LAST, {"replica": replica, "rank": rank, "limit": limit})
        return [Segment(*row) for row in cursor.fetchall()]


def since(*, job: int, source: LogSource, attempt: int, after: int, limit: int) -> list[Segment]:
    """Return the segments that arrived after the one with the id `after`, oldest first."""
    with connection.cursor() as cursor:
        given = {"job": job, **source.given, "attempt": attempt, "after": after, "limit": limit}
        cursor.execute(_SINCE, given)
        return [Segment(*row) for row in cursor.fetchall()]


def ends(*, job: int, source: LogSource, attempt: int) -> dict[Stream, int]:
    """Return the number of the next line in each stream."""
    with connection.cursor() as cursor:
        cursor.execute(_ENDS, {"job": job, **source.given, "attempt": attempt})
        return {(replica, number): line for replica, number, line in cursor.fetchall()}


def content(segment: Segment, *, skip: int = 0) -> tuple[Iterator[str], str]:
    """Return a segment's lines as stored ("<ms> <text>") after the first `skip`, and a message about missing ones.

    Lines are created lazily: a few kilobytes may unpack to millions of lines.
    """
    if not segment.path:
        return iter(()), f"[{segment.lines} lines, {segment.raw_bytes} bytes are missing here]"
    try:
        text = _stored(segment)
    except (OSError, Unreadable, zlib.error) as error:
        words = str(error) if isinstance(error, Unreadable) else type(error).__name__
        return iter(()), f"[{segment.lines} lines cannot be read: {words}]"
    # After the last line's end there is nothing, or more than the row says.
    count = min(segment.lines, text.count("\n") + (text[-1:] not in ("", "\n")))
    missing = segment.lines - count
    return lines_between(text, min(skip, count), count), f"[{missing} lines are missing here]" if missing else ""


def lines_between(text: str, begin: int, end: int) -> Iterator[str]:
    """Yield the lines numbered from `begin` to before `end`, without splitting the rest of the text."""
    at = _behind(text, begin)
    for _ in range(begin, end):
        stop = text.find("\n", at)
        yield text[at : stop if stop >= 0 else len(text)]
        at = stop + 1


def _behind(text: str, lines: int) -> int:
    """Return where the line with this number, from 0, begins; the text has at least that many."""
    at = 0
    while lines:
        within = text.count("\n", at, at + BLOCK)
        if within < lines and at < len(text):
            lines, at = lines - within, at + BLOCK
            continue
        for _ in range(lines):
            at = text.find("\n", at) + 1
        break
    return at


def parsed(raw: str, *, least: datetime, most: datetime) -> tuple[datetime, str]:
    """Split a stored line into time and text.

    A missing time, or one outside the row's bounds, is replaced by a bound.
    """
    stamp, _, text = raw.partition(" ")
    if stamp.isdecimal() and len(stamp) < 14:
        return min(max(datetime.fromtimestamp(int(stamp) / 1000, UTC), least), most), text
    return least, text


def _stored(segment: Segment) -> str:
    """Unpack a segment's text. Bounded by its row: data that unpacks to more is invalid, and is not read on."""
    packed = storage.read(segment.path, offset=segment.offset, size_bytes=segment.size_bytes)
    text = zlib.decompressobj().decompress(packed, min(segment.raw_bytes, MAX_SEGMENT_RAW_BYTES) + 1)
    if len(text) > segment.raw_bytes:
        raise Unreadable(f"they unpack to more than the {segment.raw_bytes} bytes that were said")
    return text.decode("utf-8", "replace")


__all__ = [
    "EVERYBODY",
    "LAUNCHER",
    "LogSource",
    "Segment",
    "Unread",
    "content",
    "ends",
    "last",
    "newest",
    "parsed",
    "since",
    "unread",
]
