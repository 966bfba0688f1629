"""Reading and following logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muster.errors import CutOff, NotFound, UnexpectedAnswer
from muster.http.transport import Transport
from muster.jobs import calls
from muster.jobs.calls import JobRef
from muster.jobs.follow import Follower, LogReader, Seen, lines_of
from muster.jobs.models import Job, LogLine, LogPage
from muster.jobs.streams import log_text


class Logs(Transport):
    def logs(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        rank: int | None = None,
        replica: str | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[LogLine]:
        """Yield the lines of all ranks, or of one rank or replica, that exist so far.

        With `follow`, as they come, until the job has ended or is suspended.
        """
        for page in self.log_pages(
            job, follow=follow, rank=rank, replica=replica, attempt=attempt, tail=tail, cursor=cursor
        ):
            yield from page.lines

    def log_pages(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        rank: int | None = None,
        replica: str | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[LogPage]:
        """Like `logs`, a page at a time: each carries the cursor from which another reader continues."""
        job_id = self._run(calls.find_id(job))
        reader = LogReader(
            job_id, rank=rank, replica=replica, attempt=attempt, tail=tail, is_following=follow, cursor=cursor
        )
        if follow:
            yield from (seen for seen in self._followed(Follower(reader)) if isinstance(seen, LogPage))
            return
        while not reader.is_done:
            page = self._send(reader.call())
            yield page
            reader.take(page)

    def log_page(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        replica: str | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
        wait_seconds: int = 0,
    ) -> LogPage:
        """Return one answer of the log endpoint, for callers that keep the cursor themselves."""
        job_id = self._run(calls.find_id(job))
        asked: dict[str, Any] = {"rank": rank, "replica": replica, "attempt": attempt, "tail": tail, "cursor": cursor}
        return self._send(calls.log_page(job_id, wait_seconds=wait_seconds, **asked))

    def follow(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        replica: str | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[LogLine | Job]:
        """Yield each line as it comes and, whenever its phase changes, the job; the last item is the ended job.

        A server restart is waited out, for up to five minutes; no line is lost or repeated. Also ends when the job is
        suspended.
        """
        for seen in self.follow_pages(job, rank=rank, replica=replica, tail=tail, cursor=cursor):
            yield from lines_of(seen)

    def follow_pages(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        replica: str | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[LogPage | Job]:
        """Like `follow`, a page of lines at a time."""
        job_id = self._run(calls.find_id(job))
        reader = LogReader(job_id, rank=rank, replica=replica, tail=tail, cursor=cursor, is_following=True)
        yield from self._followed(Follower(reader))

    def log_text(
        self, job: JobRef, *, rank: int | None = None, replica: str | None = None, attempt: int | None = None
    ) -> Iterator[str]:
        """Yield the whole log of one attempt as text, in pieces, however long: time, rank, line."""
        call = log_text(self._run(calls.find_id(job)), rank=rank, replica=replica, attempt=attempt)
        with self._open(call) as reply:
            yield from reply.iter_text()

    def _followed(self, follower: Follower) -> Iterator[Seen]:
        while not follower.is_done:
            yield from self._streamed(follower) if follower.is_streaming else self._asked(follower)
            self._sleep(follower.rest_seconds)

    def _asked(self, follower: Follower) -> Iterator[Seen]:
        return follower.take(self._send(follower.call()))

    def _streamed(self, follower: Follower) -> Iterator[Seen]:
        """Yield what one open connection delivers, until it breaks off or is no longer needed."""
        try:
            with self._open(follower.stream()) as reply:
                for line in reply.iter_lines():
                    yield from follower.hear(line)
                    if follower.wants_look:
                        yield from self._asked(follower)
                    if not follower.is_streaming:
                        return
        except CutOff:
            pass
        except (NotFound, UnexpectedAnswer):
            follower.do_without_stream()
            return
        follower.broke_off()
