"""When to ask again, while following a log or waiting for a job. No clock: the caller sleeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from muster.calls import LONG_POLL_SECONDS, Call, log_page
from muster.errors import WaitTimeout
from muster.models import Job, LogPage

# The server answers a long poll at the first new line; without a rest, a talkative job would cost a request a line.
REST_SECONDS = 0.25
BUSY_PAGE_LINES = 500  # a page this full has more behind it
MOST_EMPTY_PAGES = 20  # in a row; a bound, should a server's cursor never come to rest
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 2.0


@dataclass
class LogReader:
    """The place in a log. Ask `call()`, hand the page to `take()`, rest as long as it says, until `is_done`."""

    job_id: int
    rank: int | None = None
    tail: int | None = None
    is_following: bool = False
    cursor: str | None = None
    is_done: bool = False
    empty_pages: int = 0

    def call(self, *, wait_seconds: int = LONG_POLL_SECONDS) -> Call[LogPage]:
        return log_page(self.job_id, **self.place(wait_seconds=wait_seconds))

    def place(self, *, wait_seconds: int) -> dict[str, Any]:
        # The first page shows at once what there is.
        wait = wait_seconds if self.is_following and self.cursor else 0
        return {"rank": self.rank, "tail": self.tail, "cursor": self.cursor, "wait_seconds": wait}

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


def wait_pause(waited: float, *, timeout: float | None) -> float:
    """Short jobs are seen to end soon, long ones are asked about less often."""
    pause = min(max(FIRST_WAIT_SECONDS, waited / 10), LONGEST_WAIT_SECONDS)
    return pause if timeout is None else min(pause, max(timeout - waited, 0.01))


def too_late(job: Job, *, timeout: float) -> WaitTimeout:
    return WaitTimeout(f"job {job.id} is still {job.phase} after {timeout:g} s: wait again, or cancel it")
