"""Decide the next request while following a log or waiting for a job. No clock: the caller sleeps.

Lines come over a stream that stays open. Polling is for servers without such a route, for networks that let no stream
through, and for the last lines of a suspended job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from muster.errors import WaitTimeout
from muster.http.call import Call
from muster.jobs.calls import LONG_POLL_SECONDS, job, log_page, patient
from muster.jobs.models import Job, LogLine, LogPage
from muster.jobs.streams import EventReader, StreamEvent, log_stream

# The server answers a long poll at the first new line; without a pause, a busy job would cost a request per line.
REST_SECONDS = 0.25
BUSY_PAGE_LINES = 500  # a page this full has more behind it
MOST_EMPTY_PAGES = 20  # in a row; a limit, in case a server's cursor never stops advancing
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 2.0
PAGES_PER_LOOK = 8  # while a job prints without a pause, its phase is checked after this many pages
QUIET_POLL_SECONDS = 2  # before a job runs there is no log, and users wait for its phases
MOST_EMPTY_STREAMS = 3  # in a row; each begins with an event, so a proxy must be buffering them

Seen = Union[LogPage, Job]


@dataclass
class LogReader:
    """A position in a log. Send `call()`, pass the page to `take()`, pause as long as it returns, until `is_done`."""

    job_id: int
    rank: int | None = None
    replica: str | None = None
    attempt: int | None = None
    tail: int | None = None
    is_following: bool = False
    cursor: str | None = None
    is_done: bool = False
    empty_pages: int = 0

    def call(self, *, wait_seconds: int = LONG_POLL_SECONDS) -> Call[LogPage]:
        # The first page returns at once what exists.
        wait = wait_seconds if self.is_following and self.cursor else 0
        asked: dict[str, Any] = {"rank": self.rank, "replica": self.replica, "attempt": self.attempt, "tail": self.tail}
        call = log_page(self.job_id, cursor=self.cursor, wait_seconds=wait, **asked)
        return patient(call) if self.is_following else call

    def stream(self) -> Call[Any]:
        tail = None if self.cursor else self.tail
        return log_stream(
            self.job_id, rank=self.rank, replica=self.replica, attempt=self.attempt, tail=tail, cursor=self.cursor
        )

    def take(self, page: LogPage) -> float:
        """Advance by a page; return the seconds to pause before the next call."""
        self.is_done = page.is_complete or (not self.is_following and self._is_at_end(page))
        self.cursor = page.cursor or self.cursor
        is_caught_up = len(page.lines) < BUSY_PAGE_LINES
        return REST_SECONDS if self.is_following and is_caught_up and not self.is_done else 0.0

    def _is_at_end(self, page: LogPage) -> bool:
        """Return whether the log is read to its end.

        One empty page is not enough: the cursor may have moved to the next attempt.
        """
        self.empty_pages = 0 if page.lines else self.empty_pages + 1
        is_stuck = page.cursor in (None, self.cursor)
        return is_stuck or self.empty_pages >= MOST_EMPTY_PAGES


@dataclass
class Follower:
    """A job's lines and phases as they happen.

    Open `stream()` while it `is_streaming`, and pass each line to `receive()`; else, and whenever it `wants_look`, send
    `call()` and pass the answer to `take()`. Pause for `rest_seconds`, and continue until `is_done`. It ends when the
    job has ended and its log is complete, or when the job is suspended, for an unknown time. `cursor` is where another
    follower continues without a line lost or repeated.
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

    def receive(self, line: str) -> Iterator[LogPage]:
        """Yield what is new in a line of the stream."""
        event = self.events.take(line)
        if event is not None:
            self.empty_streams = 0
            yield from self._new_in(event)

    def broke_off(self) -> None:
        """Note that the stream is over, with or without its final event."""
        self.rest_seconds = 0.0 if self.reader.is_done else REST_SECONDS
        self.has_stream = self.empty_streams < MOST_EMPTY_STREAMS

    def do_without_stream(self) -> None:
        """Fall back to polling: the server has no such route."""
        self.has_stream, self.rest_seconds = False, 0.0

    def call(self) -> Call[Any]:
        if self.job is None or self.wants_look:
            return patient(job(self.reader.job_id))
        return self.reader.call(wait_seconds=LONG_POLL_SECONDS if self.job.phase == "running" else QUIET_POLL_SECONDS)

    def take(self, seen: Seen) -> Iterator[Seen]:
        """Yield what is new in the answer."""
        return self._look(seen) if isinstance(seen, Job) else self._read(seen)

    @property
    def _is_suspended(self) -> bool:
        return self.job is not None and self.job.is_suspended

    def _new_in(self, event: StreamEvent) -> Iterator[LogPage]:
        if event.kind == "phase" and (event.content["phase"], event.content["message"]) != _reported(self.job):
            self.pages_since_look = PAGES_PER_LOOK
        elif event.kind in ("lines", "end"):
            page = LogPage.parse(event.content)
            self.reader.take(page)
            if page.lines and event.kind == "lines":  # `end` repeats the last page
                yield page

    def _look(self, seen: Job) -> Iterator[Seen]:
        before, self.job, self.pages_since_look = self.job, seen, 0
        self.is_done = self.reader.is_done and seen.is_finished
        self.rest_seconds = REST_SECONDS if self.reader.is_done and not self.is_done else 0.0
        # The end is reported once, after the last line.
        if self.is_done or (not seen.is_finished and _reported(before) != _reported(seen)):
            yield seen

    def _read(self, page: LogPage) -> Iterator[Seen]:
        self.rest_seconds = self.reader.take(page)
        # A page without lines means that time passed, so the phase may have changed.
        self.pages_since_look = self.pages_since_look + 1 if page.lines else PAGES_PER_LOOK
        if page.lines:
            yield page
        elif self.job and self._is_suspended:
            self.is_done = True
            yield self.job


def _reported(job: Job | None) -> tuple[str, str] | None:
    return (job.phase, job.message) if job else None


def lines_of(seen: Seen) -> Iterator[LogLine | Job]:
    if isinstance(seen, Job):
        yield seen
    else:
        yield from seen.lines


def wait_pause(waited: float, *, timeout: float | None) -> float:
    """Return the seconds until the next poll: short at first, so that short jobs are noticed soon, then longer."""
    pause = min(max(FIRST_WAIT_SECONDS, waited / 10), LONGEST_WAIT_SECONDS)
    return pause if timeout is None else min(pause, max(timeout - waited, 0.01))


def too_late(job: Job, *, timeout: float) -> WaitTimeout:
    return WaitTimeout(f"job {job.id} is still {job.phase} after {timeout:g} s: wait again, or cancel it")
