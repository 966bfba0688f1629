"""Download or search a whole log. Memory and work of each step are bounded, however long the log is."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, cast

import re2

from common.db.db_connections import give_back
from common.errors import InvalidInput, Problem
from common.limits.turns import ThreadTurns
from jobs.core.cursor import Cursor
from jobs.models import Job

from . import segments
from .reader import LAUNCHER, LogLine, following
from .segments import EVERYBODY, LogSource, Segment

PIECE_LINES = 20_000
SEARCH_BYTES = 256 * 2**20  # of text searched per call; its answer says where to continue
SEARCH_SECONDS = 1.0  # of CPU time; the answer of a call that was cut short says where to continue, too
SEARCHES = 2  # concurrent ones in this process: a search takes a core, and pages need the other
LOOK_LINES, REGEX_LOOK_LINES = 4096, 16  # lines between two checks of the time: one segment may have millions
LONG_LINE = 1000  # characters; after such a line it is checked at once
SEARCH_LINES = 200
MOST_SEARCH_LINES = 1000
ROWS = 200  # per query
MOST_WAITING = 4  # searches of one user
# RE2 takes time in proportion to the compiled pattern and to a line's length, where Python's own `re` may take forever.
# Both are bounded: 5,000 steps, which counted repetitions multiply, on 16,384 characters take a quarter of a second.
MOST_PATTERN, PATTERN_BYTES, MOST_STEPS, MOST_MATCHED = 200, 2**20, 5000, 16_384

searching = ThreadTurns(
    SEARCHES,
    each=1,
    most_waiting=MOST_WAITING,
    words="several of your searches are running; they run one after another",
)


class FoundLine(NamedTuple):
    """A matching line. `number` counts the lines of one rank from 0."""

    number: int
    line: LogLine


class SearchResult(NamedTuple):
    """Lines in the order they arrived; `next` is where the search continues, empty once it has seen everything."""

    lines: list[FoundLine]
    next: str


def stream_text(
    *, job: Job, source: LogSource = EVERYBODY, attempt: int | None = None, shown: Callable[[str], str] = str
) -> Iterator[str]:
    """Yield one attempt (default: the newest) as text: time, rank or replica, and the line after `shown`."""
    place = Cursor(job.attempt if attempt is None else attempt)
    while True:
        lines, after = following(job=job.pk, source=source, place=place, limit=PIECE_LINES)
        if not lines:
            return
        yield "".join(f"{_stamp(line.at)} {_who(line):>8}  {shown(line.text)}\n" for line in lines)
        place = after


def search(
    *,
    job: Job,
    text: str,
    by: int | None,
    source: LogSource = EVERYBODY,
    attempt: int | None = None,
    limit: int = SEARCH_LINES,
    start: str = "",
    is_regex: bool = False,
) -> SearchResult:
    """Return lines of one attempt (default: the newest) that contain `text`, ignoring case.

    `is_regex`: `text` is a regular expression (RE2: no look-around, no back-references). `by`: the id of the searching user. A team's searches run one after another, its users taking turns; raises Busy if
    too many of one user wait.
    """
    matches = matcher(text, is_regex=is_regex)
    which, limit = job.attempt if attempt is None else attempt, max(1, min(limit, MOST_SEARCH_LINES))
    after, line = _start(start)
    give_back()  # do not hold a database connection while waiting for a turn, or reading files
    with searching.turn(job.team_id, by):
        look_lines = REGEX_LOOK_LINES if is_regex else LOOK_LINES
        return scan(job.pk, matches, source, attempt=which, limit=limit, after=after, line=line, look_lines=look_lines)


def matcher(text: str, *, is_regex: bool) -> Callable[[str], object]:
    """Return a test of whether a line is one of those asked for. Raises InvalidInput."""
    if not text.strip():
        raise InvalidInput(Problem("text", text, "must not be empty; give the text to find"))
    if not is_regex:
        wanted = text.lower()
        return lambda line: wanted in line.lower()
    if len(text) > MOST_PATTERN:
        raise InvalidInput(
            Problem("text", text[:40], f"a regular expression may have at most {MOST_PATTERN} characters")
        )
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, PATTERN_BYTES
    try:
        pattern = re2.compile(text, options=options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        words = f"is not a regular expression that can be searched for: {why}. The syntax is RE2's"
        raise InvalidInput(Problem("text", text, words)) from error
    if pattern.programsize > MOST_STEPS:
        words = (
            f"repeats too much ({pattern.programsize:,} steps, of at most {MOST_STEPS:,}); use smaller counts in {{}}"
        )
        raise InvalidInput(Problem("text", text, words))
    find = cast(Callable[[str], object], pattern.search)
    return lambda line: find(line[:MOST_MATCHED])


def scan(
    job: int, matches: Callable[[str], object], source: LogSource, *, attempt: int, limit: int, after: int, line: int, look_lines: int = LOOK_LINES
) -> SearchResult:  # fmt: skip
    """Search one attempt from a position on, for a bounded time; the caller holds the turn."""
    found: list[FoundLine] = []
    scanned, until, read = 0, time.thread_time() + SEARCH_SECONDS, 0
    for segment in _rows(job, source, attempt, after=after):
        for number, one in _numbered(segment, attempt, line if segment.id == after + 1 else 0):
            is_here = matches(one.text)
            is_due = read and (not read % look_lines or len(one.text) > LONG_LINE)
            if (is_here and len(found) == limit) or (is_due and time.thread_time() > until):
                return SearchResult(found, f"{segment.id - 1}.{number}")
            read += 1
            if is_here:
                found.append(FoundLine(number, one))
        scanned += segment.raw_bytes if segment.path else 0
        if scanned >= SEARCH_BYTES or time.thread_time() > until:
            return SearchResult(found, f"{segment.id}.0")
    return SearchResult(found, "")


def _rows(job: int, source: LogSource, attempt: int, *, after: int) -> Iterator[Segment]:
    while rows := segments.since(job=job, source=source, attempt=attempt, after=after, limit=ROWS):
        give_back()
        yield from rows
        after = rows[-1].id


def _numbered(segment: Segment, attempt: int, start: int) -> Iterator[tuple[int, LogLine]]:
    """Yield a segment's lines with their numbers, from number `start` on."""
    first = max(start, segment.first_line)
    lines, _ = segments.content(segment, skip=first - segment.first_line)
    at = segment.first_at
    for number, raw in enumerate(lines, first):
        at, line = segments.parsed(raw, least=at, most=segment.last_at)
        yield number, LogLine(segment.rank, attempt, at, line, replica=segment.replica_name, number=number + 1)


def _start(text: str) -> tuple[int, int]:
    if not text:
        return 0, 0
    segment, _, line = text.partition(".")
    if not (segment.isdecimal() and line.isdecimal() and len(text) < 40):
        raise InvalidInput(Problem("start", text[:40], "is not a valid position; omit it to search from the beginning"))
    return int(segment), int(line)


def _who(line: LogLine) -> str:
    return line.replica if line.rank == LAUNCHER else f"rank {line.rank}"


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
