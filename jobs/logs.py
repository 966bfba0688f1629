"""Reading logs: rank r after cursor c, or all ranks merged by time. Lines come from segments that ingest stored."""

import zlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from django.core.files.storage import storages
from django.db.models import F, Max, QuerySet
from django.utils import timezone

from controlplane import crash

from .batches import LAUNCHER, MAX_SEGMENT_RAW_BYTES
from .cursors import Cursor, Stream, decode
from .models import Job, LogSegment

PAGE_LINES = 500
MAX_PAGE_LINES = 10_000
MAX_SEGMENTS = 400  # per page; each is at most 256 KiB as agents send them


@dataclass(frozen=True)
class LogLine:
    """One line of one rank; `rank` -1 is the launcher. A gap line says what is missing instead."""

    rank: int
    attempt: int
    at: datetime
    text: str
    is_gap: bool = False


@dataclass(frozen=True)
class LogPage:
    lines: list[LogLine]
    cursor: str
    is_complete: bool  # the job is finished and all of its lines were read


def read(
    *,
    job: Job,
    rank: int | None = None,
    cursor: str = "",
    limit: int = PAGE_LINES,
    tail: int | None = None,
    attempt: int | None = None,
) -> LogPage:
    """The next lines after `cursor`; without one from the start of the first attempt, or the last `tail` of the newest.

    A page holds whole segments, so it may be somewhat longer than `limit`.
    """
    limit = max(1, min(limit, MAX_PAGE_LINES))
    if cursor:
        place = decode(cursor)
    elif tail is not None:
        place = _near_end(job, rank, attempt or job.attempt, tail)
    else:
        place = Cursor(attempt or min(1, job.attempt))
    # The state is read before the segments: whatever came before the end is then surely seen.
    is_over = Job.objects.filter(pk=job.pk, finished_at__isnull=False).exists()
    lines, place, is_end = _page(job, rank, place, limit)
    if tail is not None and not cursor:
        lines = lines[-tail:] if tail else []
    if is_end and place.attempt < job.attempt and attempt is None:
        place, is_end = Cursor(place.attempt + 1), False
    return LogPage(lines, place.encode(), is_over and is_end)


def last_lines(*, job: Job, attempt: int, rank: int, count: int) -> list[str]:
    """The end of one rank's log."""
    return [line.text for line in read(job=job, rank=rank, tail=count, attempt=attempt).lines]


def newest_segment(job: Job) -> int:
    """The largest segment id of a job: changes when there is something to read."""
    return LogSegment.objects.filter(job=job).aggregate(top=Max("id"))["top"] or 0


def _segments(job: Job, rank: int | None, attempt: int) -> QuerySet[LogSegment]:
    found = LogSegment.objects.filter(job=job, attempt=attempt)
    return found if rank is None else found.filter(rank=rank)


def _page(job: Job, rank: int | None, place: Cursor, limit: int) -> tuple[list[LogLine], Cursor, bool]:
    """Unread segments in order of their time until `limit` lines are there; True when none is left."""
    found = _unread(job, rank, place)
    taken: list[LogSegment] = []
    count = 0
    for segment in found[:MAX_SEGMENTS]:
        if count >= limit:
            break
        taken.append(segment)
        count += _shown(segment)
    is_end = len(taken) == len(found)
    lines = [line for segment in taken for line in _lines(segment, place.next.get(_stream(segment), 0))]
    lines.sort(key=lambda line: line.at)  # stable: lines of one rank keep their order
    return lines, _advance(place, taken, is_end), is_end


def _unread(job: Job, rank: int | None, place: Cursor) -> list[LogSegment]:
    """At least one more than a page takes, so that the end is known."""
    found = _segments(job, rank, place.attempt).filter(id__gt=place.floor).order_by("first_at", "id")
    if not place.next:
        return list(found[: MAX_SEGMENTS + 1])
    return [one for one in found if one.first_line + one.lines > place.next.get(_stream(one), 0)]


def _advance(place: Cursor, taken: list[LogSegment], is_end: bool) -> Cursor:
    following = dict(place.next)
    for segment in taken:
        stream = _stream(segment)
        following[stream] = max(following.get(stream, 0), segment.first_line + segment.lines)
    place = replace(place, next=following)
    largest = max((segment.id for segment in taken), default=place.top)
    return place.read_to(largest, timezone.now().timestamp()) if is_end else place


def _near_end(job: Job, rank: int | None, attempt: int, tail: int) -> Cursor:
    """A cursor before the last `tail` lines: the newest segments that hold that many, everything older skipped."""
    segments = _segments(job, rank, attempt)
    ends = segments.order_by().values_list("replica_id", "rank").annotate(end=Max(F("first_line") + F("lines")))
    following: dict[Stream, int] = {(replica, number): end for replica, number, end in ends}
    count = 0
    for segment in segments.order_by("-last_at", "-id")[:MAX_SEGMENTS]:
        if count >= tail:
            break
        following[_stream(segment)] = min(following[_stream(segment)], segment.first_line)
        count += _shown(segment)
    return Cursor(attempt, following)


def _shown(segment: LogSegment) -> int:
    """How many lines a reader sees of it: a gap is one."""
    return segment.lines if segment.path else 1


def _stream(segment: LogSegment) -> Stream:
    return segment.replica_id, segment.rank


def _lines(segment: LogSegment, start: int) -> list[LogLine]:
    """The lines of one segment from number `start` on."""
    if not segment.path:
        missing = f"[{segment.lines} lines, {segment.raw_bytes} bytes are missing here]"
        return [LogLine(segment.rank, segment.attempt, segment.first_at, missing, is_gap=True)]
    try:
        text = _text(segment)
    except (OSError, zlib.error) as error:
        message = f"[{segment.lines} lines can not be read: {type(error).__name__}]"
        return [LogLine(segment.rank, segment.attempt, segment.first_at, message, is_gap=True)]
    raw = text.split("\n")[: segment.lines]
    return [_line(segment, one) for one in raw[max(0, start - segment.first_line) :]]


def _line(segment: LogSegment, raw: str) -> LogLine:
    stamp, _, text = raw.partition(" ")
    at = datetime.fromtimestamp(int(stamp) / 1000, UTC) if stamp.isdecimal() and len(stamp) < 15 else segment.first_at
    return LogLine(segment.rank, segment.attempt, at, text)


def _text(segment: LogSegment) -> str:
    with crash.around("logs.read"), storages["logs"].open(segment.path, "rb") as file:
        file.seek(segment.offset)
        packed = file.read(segment.size_bytes)
    # Bounded: a blob that unpacks to more than its row says is not read on.
    return zlib.decompressobj().decompress(packed, MAX_SEGMENT_RAW_BYTES * 2).decode("utf-8", "replace")


__all__ = ["LAUNCHER", "LogLine", "LogPage", "last_lines", "newest_segment", "read"]
