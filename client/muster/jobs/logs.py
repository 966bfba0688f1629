"""Reading and following logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from muster.errors import CutOff, NotFound, UnexpectedAnswer
from muster.http.session import closing, flat
from muster.jobs import calls
from muster.jobs.calls import JobRef
from muster.jobs.follow import Follower, LogReader, Seen, lines_of
from muster.jobs.models import Job, LogLine, LogPage
from muster.jobs.operations import Jobs
from muster.jobs.streams import log_text


class Logs(Jobs):
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
    ) -> AsyncIterator[LogLine]:
        """Yield the lines of all ranks, or of one rank or replica, that exist so far.

        With `follow`, as they come, until the job has ended or is suspended.
        """
        asked: dict[str, Any] = {"rank": rank, "replica": replica, "attempt": attempt, "tail": tail, "cursor": cursor}
        return flat(self.log_pages(job, follow=follow, **asked), lambda page: page.lines)

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
    ) -> AsyncIterator[LogPage]:
        """Like `logs`, a page at a time: each carries the cursor from which another reader continues."""
        asked: dict[str, Any] = {"rank": rank, "replica": replica, "attempt": attempt, "tail": tail, "cursor": cursor}
        if follow:
            return flat(self._followed(job, **asked), lambda seen: [seen] if isinstance(seen, LogPage) else [])
        return self._read(job, **asked)

    async def log_page(
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
        job_id = await self._id(job)
        asked: dict[str, Any] = {"rank": rank, "replica": replica, "attempt": attempt, "tail": tail, "cursor": cursor}
        return await self._send(calls.log_page(job_id, wait_seconds=wait_seconds, **asked))

    def follow(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        replica: str | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> AsyncIterator[LogLine | Job]:
        """Yield each line as it comes and, whenever its phase changes, the job; the last item is the ended job.

        A server restart is waited out, for up to five minutes; no line is lost or repeated. Also ends when the job is
        suspended.
        """
        return flat(self.follow_pages(job, rank=rank, replica=replica, tail=tail, cursor=cursor), lines_of)

    def follow_pages(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        replica: str | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> AsyncIterator[LogPage | Job]:
        """Like `follow`, a page of lines at a time."""
        return self._followed(job, rank=rank, replica=replica, tail=tail, cursor=cursor)

    async def log_text(
        self, job: JobRef, *, rank: int | None = None, replica: str | None = None, attempt: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the whole log of one attempt as text, in pieces, however long: time, rank, line."""
        call = log_text(await self._id(job), rank=rank, replica=replica, attempt=attempt)
        async with self._open(call) as reply:
            async for piece in self._port.text(reply):
                yield piece

    async def _read(self, job: JobRef, **asked: Any) -> AsyncIterator[LogPage]:
        reader = LogReader(await self._id(job), **asked)
        while not reader.is_done:
            page = await self._send(reader.call())
            yield page
            reader.take(page)

    async def _followed(self, job: JobRef, **asked: Any) -> AsyncIterator[Seen]:
        follower = Follower(LogReader(await self._id(job), is_following=True, **asked))
        while not follower.is_done:
            if follower.is_streaming:
                async with closing(self._streamed(follower)) as news:
                    async for seen in news:
                        yield seen
            else:
                for seen in await self._asked(follower):
                    yield seen
            await self._port.sleep(follower.rest_seconds)

    async def _asked(self, follower: Follower) -> Iterator[Seen]:
        return follower.take(await self._send(follower.call()))

    async def _streamed(self, follower: Follower) -> AsyncIterator[Seen]:
        """Yield what one open connection delivers, until it breaks off or is no longer needed."""
        try:
            async with self._open(follower.stream()) as reply:
                async for line in self._port.lines(reply):
                    for page in follower.receive(line):
                        yield page
                    if follower.wants_look:
                        for seen in await self._asked(follower):
                            yield seen
                    if not follower.is_streaming:
                        return
        except CutOff:
            pass
        except (NotFound, UnexpectedAnswer):
            follower.do_without_stream()
            return
        follower.broke_off()
