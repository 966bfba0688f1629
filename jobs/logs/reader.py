"""Read logs: rank r after cursor c, or all ranks merged by time. Lines come from segments that ingest stored."""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone

from jobs.core.cursor import Cursor, Stream, decode
from jobs.models import Job

from . import segments
from .segments import EVERYBODY, LAUNCHER, LogSource, Segment

PAGE_LINES = 500
MAX_PAGE_LINES = 10_000
MAX_SEGMENTS = 400  # per page
OVERLAP_BYTES = 2**20  # of ranks that printed at the same time: read to merge them even if a page is full
MAX_PAGE_BYTES = 4 * 2**20  # of text: beyond it a page has fewer lines than requested


class LogLine(NamedTuple):
    """One line of one rank; `rank` -1 is the launcher. A gap line says what is missing instead."""

    rank: int
    attempt: int
    at: datetime
    text: str
    is_gap: bool = False
    replica: str = ""  # role and number, such as worker-0
    number: int = 0  # of the line in its stream, from 1; 0 for a gap


class LogPage(NamedTuple):
    lines: list[LogLine]
    cursor: str
    is_complete: bool  # the job is finished and all of its lines were read
    has_more: bool = False  # more can be read at once: lines after the last one, or another attempt


class CaughtUp(NamedTuple):
    """A page that ends at the end of the log. `skipped` counts the unread lines before its first line."""

    page: LogPage
    skipped: int


def read(
    *,
    job: Job,
    source: LogSource = EVERYBODY,
    cursor: str = "",
    limit: int = PAGE_LINES,
    tail: int | None = None,
    attempt: int | None = None,
) -> LogPage:
    """Return the next lines after `cursor`.

    Without a cursor, reading starts at the first attempt, or at the last `tail` lines of the newest.
    """
    limit = max(1, min(limit, MAX_PAGE_LINES))
    if cursor:
        return _read(job.pk, source, decode(cursor), limit=limit, only=attempt)
    if tail is None:
        return _read(job.pk, source, Cursor(attempt or min(1, job.attempt)), limit=limit, only=attempt)
    tail = min(tail, MAX_PAGE_LINES)
    end = _near_end(job.pk, source, attempt or job.attempt, tail=tail)
    page = _read(job.pk, source, end.place, limit=None, only=attempt, newest=end.newest)
    return page._replace(lines=page.lines[-tail:] if tail else [])


def around(*, job: Job, source: LogSource, attempt: int, line: int, before: int, limit: int = PAGE_LINES) -> LogPage:
    """Return a page that begins `before` lines ahead of line number `line` in each stream of `source`."""
    start = max(0, line - 1 - before)
    place = Cursor(attempt, dict.fromkeys(segments.ends(job=job.pk, source=source, attempt=attempt), start))
    return _read(job.pk, source, place, limit=limit, only=attempt)


def catch_up(*, job: Job, source: LogSource, cursor: str, limit: int, attempt: int | None = None) -> CaughtUp:
    """Return what comes after `cursor`, or only the last `limit` lines if there is more.

    A live page must not fall behind a job that prints faster than its user reads.
    """
    before = decode(cursor)
    found = _caught_up(job.pk, source, before, limit=limit, only=attempt)
    after = decode(found.page.cursor)
    if after.attempt == before.attempt:
        return found
    more = _caught_up(job.pk, source, after, limit=limit, only=attempt)  # include the next attempt's lines
    page = more.page._replace(lines=[*found.page.lines, *more.page.lines])
    return CaughtUp(page, found.skipped + more.skipped)


def _caught_up(job: int, source: LogSource, place: Cursor, *, limit: int, only: int | None) -> CaughtUp:
    page = _read(job, source, place, limit=limit, only=only)
    if not page.has_more or decode(page.cursor).attempt != place.attempt:
        return CaughtUp(page, 0)
    near = _near_end(job, source, place.attempt, tail=limit)
    start = {stream: max(place.next.get(stream, 0), line) for stream, line in near.place.next.items()}
    left_out = sum(line - place.next.get(stream, 0) for stream, line in start.items())
    page = _read(job, source, replace(place, next={**place.next, **start}), limit=None, only=only, newest=near.newest)
    shown = page.lines[-limit:]
    return CaughtUp(page._replace(lines=shown), left_out + len(page.lines) - len(shown))


def last_lines(*, job: Job, attempt: int, rank: int, count: int) -> list[str]:
    """Return the end of one rank's log."""
    return [line.text for line in read(job=job, source=LogSource(rank), tail=count, attempt=attempt).lines]


def end_of_launcher(*, replica: int, count: int) -> list[str]:
    """Return the last lines of one replica's launcher, without gaps; all launchers share one rank number."""
    found: list[str] = []
    size = 0
    for one in segments.last(stream=(replica, LAUNCHER), limit=MAX_SEGMENTS):
        size += one.raw_bytes if one.path else 0
        if len(found) >= count or (found and size > MAX_PAGE_BYTES):
            break
        texts, _ = segments.content(one, skip=max(0, one.lines - count))
        found[:0] = [segments.parsed(raw, least=one.first_at, most=one.last_at)[1] for raw in texts]
    return found[-count:]


def following(*, job: int, source: LogSource, place: Cursor, limit: int) -> tuple[list[LogLine], Cursor]:
    """Return the next lines of the cursor's attempt, and the cursor after them."""
    page = _read(job, source, place, limit=limit, only=place.attempt)
    return page.lines, decode(page.cursor)


def _read(
    job: int, source: LogSource, place: Cursor, *, limit: int | None, only: int | None, newest: int | None = None
) -> LogPage:
    """Return one page.

    Without a `limit` it ends at the segment `newest`, as any number of lines may have been added since.
    """
    found = segments.unread(job=job, source=source, place=place, limit=MAX_SEGMENTS + 1)
    if found.collected_at is not None:
        return _collected(place, found.collected_at)
    known = found.segments if newest is None else [one for one in found.segments if one.id <= newest]
    taken = _fitting(known, place, limit)
    lines, following = _merged(taken, place, limit)
    is_end = len(taken) == len(found.segments) and all(following[one.stream] >= one.end for one in taken)
    place = _advanced(place, following, taken, is_end=is_end)
    if is_end and place.attempt < found.attempt and only is None:
        place, is_end = Cursor(place.attempt + 1), False
    return LogPage(lines, place.encode(), found.is_finished and is_end, has_more=not is_end)


def _collected(place: Cursor, at: datetime) -> LogPage:
    """Return one notice in place of the lines."""
    done = replace(place, floor=2**62)
    words = (
        f"[this log was deleted on {at:%Y-%m-%d}: logs are kept for {settings.MUSTER_LOG_DAYS:g} days after a job's end, "
        "unless somebody deletes them earlier; the job's history says who did]"
    )
    lines = [LogLine(LAUNCHER, place.attempt, at, words, is_gap=True)] if place.floor != done.floor else []
    return LogPage(lines, done.encode(), True)


def _fitting(unread: list[Segment], place: Cursor, limit: int | None) -> list[Segment]:
    """Take segments from the front until a page is full, and overlapping segments within reason."""
    taken: list[Segment] = []
    lines = size = 0
    for one in unread[:MAX_SEGMENTS]:
        if limit is not None and lines >= limit:
            earlier = sum(_left(other, place) for other in taken if other.last_at <= one.first_at)
            if earlier >= limit or size >= OVERLAP_BYTES:
                break
        size += one.raw_bytes if one.path else 0
        if taken and size > MAX_PAGE_BYTES:
            break
        taken.append(one)
        lines += _left(one, place)
    return taken


def _left(segment: Segment, place: Cursor) -> int:
    """Return how many of its lines a reader has still to see."""
    return min(segment.shown, segment.end - place.next.get(segment.stream, 0))


def _merged(taken: list[Segment], place: Cursor, limit: int | None) -> tuple[list[LogLine], dict[Stream, int]]:
    """Return up to `limit` lines in order of time, and the next line of each stream. Reads only requested lines."""
    streams: dict[Stream, list[Segment]] = {}
    for segment in sorted(taken, key=lambda one: one.first_line):
        streams.setdefault(segment.stream, []).append(segment)
    # Time never runs backwards within a stream, so the order of its lines is kept.
    merged = heapq.merge(*(_stream(some, place) for some in streams.values()), key=lambda one: one[2].at)
    after = {stream: place.next.get(stream, 0) for stream in streams}
    lines: list[LogLine] = []
    for stream, end, line in itertools.islice(merged, limit):
        lines.append(line)
        after[stream] = end
    return lines, after


def _stream(some: list[Segment], place: Cursor) -> Iterator[tuple[Stream, int, LogLine]]:
    return (one for segment in some for one in _numbered(segment, place))


def _numbered(segment: Segment, place: Cursor) -> Iterator[tuple[Stream, int, LogLine]]:
    """Yield each unread line with its stream and the number of the next line."""
    stream, rank, attempt, at = segment.stream, segment.rank, place.attempt, segment.first_at
    start = max(0, place.next.get(stream, 0) - segment.first_line)
    texts, missing = segments.content(segment, skip=start)
    for number, raw in enumerate(texts, segment.first_line + start + 1):
        at, text = segments.parsed(raw, least=at, most=segment.last_at)
        yield stream, number, LogLine(rank, attempt, at, text, replica=segment.replica_name, number=number)
    if missing:
        yield stream, segment.end, LogLine(rank, attempt, at, missing, is_gap=True, replica=segment.replica_name)


def _advanced(place: Cursor, following: dict[Stream, int], taken: Iterable[Segment], *, is_end: bool) -> Cursor:
    place = replace(place, next={**place.next, **following})
    largest = max((segment.id for segment in taken), default=place.top)
    return place.read_to(largest, timezone.now().timestamp()) if is_end else place


class _End(NamedTuple):
    """A cursor before the last lines, and the id of the newest segment seen."""

    place: Cursor
    newest: int


def _near_end(job: int, source: LogSource, attempt: int, *, tail: int) -> _End:
    """Return a cursor before the last `tail` lines, at the newest segments that hold that many.

    Everything older is skipped. At most `tail` lines of one stream can be among them.
    """
    following = segments.ends(job=job, source=source, attempt=attempt)
    newest = segments.newest(job=job, source=source, attempt=attempt, limit=MAX_SEGMENTS)
    left: dict[Stream, int] = {}
    lines = size = 0
    for one in newest:
        if lines >= tail or (lines and size + one.raw_bytes > MAX_PAGE_BYTES):
            break
        wanted = left.get(one.stream, tail)
        if wanted:
            start = one.first_line if one.shown <= wanted else one.end - wanted
            # The first segment seen of a stream is its end: it may have been added after the ends were read.
            following[one.stream] = min(following[one.stream], start) if one.stream in left else start
            left[one.stream] = max(0, wanted - one.shown)
        lines, size = lines + one.shown, size + (one.raw_bytes if one.path else 0)
    return _End(Cursor(attempt, following), newest[0].id if newest else 0)


__all__ = [
    "EVERYBODY",
    "LAUNCHER",
    "CaughtUp",
    "LogLine",
    "LogPage",
    "LogSource",
    "catch_up",
    "end_of_launcher",
    "following",
    "last_lines",
    "read",
]
