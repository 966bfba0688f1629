"""Reading and following logs, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from muster.errors import CutOff, NotFound, UnexpectedAnswer
from muster.http.async_transport import AsyncTransport
from muster.jobs import calls
from muster.jobs.calls import JobRef
from muster.jobs.follow import Follower, LogReader, Seen, lines_of
from muster.jobs.models import Job, LogLine, LogPage
from muster.jobs.streams import log_text


class AsyncLogs(AsyncTransport):
    async def logs(
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
        async for page in self.log_pages(
            job, follow=follow, rank=rank, replica=replica, attempt=attempt, tail=tail, cursor=cursor
        ):
            for line in page.lines:
                yield line

    async def log_pages(
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
        job_id = await self._run(calls.find_id(job))
        reader = LogReader(
            job_id, rank=rank, replica=replica, attempt=attempt, tail=tail, is_following=follow, cursor=cursor
        )
        if follow:
            async for seen in self._followed(Follower(reader)):
                if isinstance(seen, LogPage):
                    yield seen
            return
        while not reader.is_done:
            page = await self._send(reader.call())
            yield page
            reader.take(page)

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
        job_id = await self._run(calls.find_id(job))
        asked: dict[str, Any] = {"rank": rank, "replica": replica, "attempt": attempt, "tail": tail, "cursor": cursor}
        return await self._send(calls.log_page(job_id, wait_seconds=wait_seconds, **asked))

    async def follow(
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
        async for seen in self.follow_pages(job, rank=rank, replica=replica, tail=tail, cursor=cursor):
            for item in lines_of(seen):
                yield item

    async def follow_pages(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        replica: str | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> AsyncIterator[LogPage | Job]:
        """Like `follow`, a page of lines at a time."""
        job_id = await self._run(calls.find_id(job))
        reader = LogReader(job_id, rank=rank, replica=replica, tail=tail, cursor=cursor, is_following=True)
        async for seen in self._followed(Follower(reader)):
            yield seen

    async def log_text(
        self, job: JobRef, *, rank: int | None = None, replica: str | None = None, attempt: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the whole log of one attempt as text, in pieces, however long: time, rank, line."""
        call = log_text(await self._run(calls.find_id(job)), rank=rank, replica=replica, attempt=attempt)
        async with self._open(call) as reply:
            async for piece in reply.aiter_text():
                yield piece

    async def _followed(self, follower: Follower) -> AsyncIterator[Seen]:
        while not follower.is_done:
            heard = self._streamed(follower) if follower.is_streaming else self._asked(follower)
            async for seen in heard:
                yield seen
            await self._sleep(follower.rest_seconds)

    async def _asked(self, follower: Follower) -> AsyncIterator[Seen]:
        for seen in follower.take(await self._send(follower.call())):
            yield seen

    async def _streamed(self, follower: Follower) -> AsyncIterator[Seen]:
        """Yield what one open connection delivers, until it breaks off or is no longer needed."""
        try:
            async with self._open(follower.stream()) as reply:
                async for line in reply.aiter_lines():
                    for page in follower.hear(line):
                        yield page
                    if follower.wants_look:
                        async for seen in self._asked(follower):
                            yield seen
                    if not follower.is_streaming:
                        return
        except CutOff:
            pass
        except (NotFound, UnexpectedAnswer):
            follower.do_without_stream()
            return
        follower.broke_off()
