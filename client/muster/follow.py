"""What to ask next, while following a log or waiting for a job. No clock: the caller sleeps.

Lines come over a stream that stays open. Asking for them again and again (polling) is for servers that have no such
route, for networks that let no stream through, and for the last lines of a job that was suspended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from muster.call import Call
from muster.calls import LONG_POLL_SECONDS, job, log_page, patient
from muster.errors import WaitTimeout
from muster.models import Job, LogLine, LogPage
from muster.streams import Event, EventReader, log_stream

# The server answers a long poll at the first new line; without a rest, a talkative job would cost a request a line.
REST_SECONDS = 0.25
BUSY_PAGE_LINES = 500  # a page this full has more behind it
MOST_EMPTY_PAGES = 20  # in a row; a bound, should a server's cursor never come to rest
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 2.0
PAGES_PER_LOOK = 8  # of a job that prints without a pause, its phase is looked at after so many pages
QUIET_POLL_SECONDS = 2  # before a job runs there is no log, and its phases are what people wait for
MOST_EMPTY_STREAMS = 3  # in a row; each begins with an event, so somebody on the way holds them back

Seen = Union[LogPage, Job]


@dataclass
class LogReader:
    """The place in a log. Ask `call()`, hand the page to `take()`, rest as long as it says, until `is_done`."""

    job_id: int
    rank: int | None = None
    attempt: int | None = None
    tail: int | None = None
    is_following: bool = False
    cursor: str | None = None
    is_done: bool = False
    empty_pages: int = 0

    def call(self, *, wait_seconds: int = LONG_POLL_SECONDS) -> Call[LogPage]:
        # The first page shows at once what there is.
        wait = wait_seconds if self.is_following and self.cursor else 0
        asked: dict[str, Any] = {"rank": self.rank, "attempt": self.attempt, "tail": self.tail}
        call = log_page(self.job_id, cursor=self.cursor, wait_seconds=wait, **asked)
        return patient(call) if self.is_following else call

    def stream(self) -> Call[Any]:
        tail = None if self.cursor else self.tail
        return log_stream(self.job_id, rank=self.rank, attempt=self.attempt, tail=tail, cursor=self.cursor)

    def take(self, page: LogPage) -> float:
        """Seconds to rest before the next call."""
        self.is_done = page.is_complete or (not self.is_following and self._is_at_end(page))
        self.cursor = page.cursor or self.cursor
        is_caught_up = len(page.lines) < BUSY_PAGE_LINES
        return REST_SECONDS if self.is_following and is_caught_up and not self.is_done else 0.0

    def _is_at_end(self, page: LogPage) -> bool:
        """An empty page is not yet the end: the cursor may have gone on to the next attempt."""
        self.empty_pages = 0 if page.lines else self.empty_pages + 1
        is_stuck = page.cursor in (None, self.cursor)
        return is_stuck or self.empty_pages >= MOST_EMPTY_PAGES


@dataclass
class Follower:
    """A job's lines and phases as they happen. Open `stream()` while it `is_streaming`, and hand each line to `hear()`;
    else, and whenever it `wants_look`, send `call()` and hand the answer to `take()`. Rest, and go on until `is_done`.

    It ends when the job has ended and its log is complete, or when the job is suspended: nobody knows for how long.
    `cursor` says where another follower goes on without a line lost or doubled.
    """

    reader: LogReader
    job: Job | None = None
    rest_seconds: float = 0.0
    is_done: bool = False
    has_stream: bool = True
    empty_streams: int = field(default=0, repr=False)
    pages_since_look: int = field(default=PAGES_PER_LOOK, repr=False)
    events: EventReader = field(default_factory=EventReader, repr=False)

    @property
    def cursor(self) -> str | None:
        return self.reader.cursor

    @property
    def wants_look(self) -> bool:
        return self.reader.is_done or self.pages_since_look >= PAGES_PER_LOOK

    @property
    def is_streaming(self) -> bool:
        return self.has_stream and not self.wants_look and not self._is_suspended

    def stream(self) -> Call[Any]:
        self.events.begin()
        self.empty_streams += 1
        return self.reader.stream()

    def hear(self, line: str) -> Iterator[LogPage]:
        """What is news in a line of the stream."""
        event = self.events.take(line)
        if event is not None:
            self.empty_streams = 0
            yield from self._heard(event)

    def broke_off(self) -> None:
        """The stream is over, by its end or without one."""
        self.rest_seconds = 0.0 if self.reader.is_done else REST_SECONDS
        self.has_stream = self.empty_streams < MOST_EMPTY_STREAMS

    def do_without_stream(self) -> None:
        """The server has no such route."""
        self.has_stream, self.rest_seconds = False, 0.0

    def call(self) -> Call[Any]:
        if self.job is None or self.wants_look:
            return patient(job(self.reader.job_id))
        return self.reader.call(wait_seconds=LONG_POLL_SECONDS if self.job.phase == "running" else QUIET_POLL_SECONDS)

    def take(self, seen: Seen) -> Iterator[Seen]:
        """What is news in the answer."""
        return self._look(seen) if isinstance(seen, Job) else self._read(seen)

    @property
    def _is_suspended(self) -> bool:
        return self.job is not None and self.job.is_suspended

    def _heard(self, event: Event) -> Iterator[LogPage]:
        if event.kind == "phase" and (event.content["phase"], event.content["message"]) != _told(self.job):
            self.pages_since_look = PAGES_PER_LOOK
        elif event.kind in ("lines", "end"):
            page = LogPage.parse(event.content)
            self.reader.take(page)
            if page.lines and event.kind == "lines":  # `end` repeats the page that was the last
                yield page

    def _look(self, seen: Job) -> Iterator[Seen]:
        before, self.job, self.pages_since_look = self.job, seen, 0
        self.is_done = self.reader.is_done and seen.is_finished
        self.rest_seconds = REST_SECONDS if self.reader.is_done and not self.is_done else 0.0
        # That it has ended is said once, after the last line.
        if self.is_done or (not seen.is_finished and _told(before) != _told(seen)):
            yield seen

    def _read(self, page: LogPage) -> Iterator[Seen]:
        self.rest_seconds = self.reader.take(page)
        # A page without lines means that time went by, and perhaps the phase with it.
        self.pages_since_look = self.pages_since_look + 1 if page.lines else PAGES_PER_LOOK
        if page.lines:
            yield page
        elif self.job and self._is_suspended:
            self.is_done = True
            yield self.job


def _told(job: Job | None) -> tuple[str, str] | None:
    return (job.phase, job.message) if job else None


def lines_of(seen: Seen) -> Iterator[LogLine | Job]:
    if isinstance(seen, Job):
        yield seen
    else:
        yield from seen.lines


def wait_pause(waited: float, *, timeout: float | None) -> float:
    """Short jobs are seen to end soon, long ones are asked about less often."""
    pause = min(max(FIRST_WAIT_SECONDS, waited / 10), LONGEST_WAIT_SECONDS)
    return pause if timeout is None else min(pause, max(timeout - waited, 0.01))


def too_late(job: Job, *, timeout: float) -> WaitTimeout:
    return WaitTimeout(f"job {job.id} is still {job.phase} after {timeout:g} s: wait again, or cancel it")
