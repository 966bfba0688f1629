"""The same SDK for asyncio: every method of `muster.client.Client`, awaited.

Requests, their parsing, retries and the steps of each operation are shared (`calls`, `wire`, `follow`); only the
waiting differs.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, Callable, TypeVar

import httpx

from muster import calls
from muster.call import Call, Flow, Page, whole
from muster.calls import JobRef
from muster.config import find_server
from muster.follow import Follower, LogReader, lines_of, too_late, wait_pause
from muster.models import Job, Login, LogLine, LogPage, Me, Queue, Series, Workspace
from muster.operations import Operations
from muster.wire import Reply, Retry, Wire
from muster.workspace import pack

T = TypeVar("T")


class AsyncClient(Operations):
    """See `muster.client.Client`; `jobs`, `audit`, `logs` and `follow` are asynchronous iterators."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_retry: Callable[[Retry], None] = lambda retry: None,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        self.url = found.url
        self._wire = Wire(found.url, found.token, timeout_seconds)
        self._http = httpx.AsyncClient(**self._wire.settings())
        self._sleep = sleep
        self._on_retry = on_retry

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def submit(
        self,
        command: str | Sequence[str],
        *,
        queue: str,
        directory: str | os.PathLike[str] | None = ".",
        workspace: int | None = None,
        nodes: int | None = None,
        nproc_per_node: int | None = None,
        gpus: int | None = None,
        name: str | None = None,
        framework: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        volumes: Sequence[str] | None = None,
        grace_seconds: int | None = None,
        start_timeout_seconds: int | None = None,
        max_retries: int | None = None,
        priority: int | None = None,
        deadline_seconds: int | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Pack and upload the folder, then submit.

        `directory=None` sends no code, `workspace` names one uploaded before. What is not given is the server's to
        decide. The same `idempotency_key` never makes a second job.
        """
        spec = calls.job_spec(
            command,
            queue=queue,
            workspace=workspace,
            nodes=nodes,
            nproc_per_node=nproc_per_node,
            gpus=gpus,
            name=name,
            framework=framework,
            env=env,
            secrets=secrets,
            volumes=volumes,
            grace_seconds=grace_seconds,
            start_timeout_seconds=start_timeout_seconds,
            max_retries=max_retries,
            priority=priority,
            deadline_seconds=deadline_seconds,
        )
        packed = None if directory is None or workspace is not None else await asyncio.to_thread(pack, directory)
        return await self._run(calls.submit(spec, pack=packed, key=idempotency_key or str(uuid.uuid4())))

    async def upload(self, directory: str | os.PathLike[str], *, queue: str | None = None) -> Workspace:
        return await self._send(calls.upload(await asyncio.to_thread(pack, directory), queue=queue))

    async def job(self, job: JobRef) -> Job:
        return await self._run(calls.find_job(job))

    async def cancel(self, job: JobRef) -> Job:
        return await self._act(job, verb="cancel")

    async def suspend(self, job: JobRef) -> Job:
        return await self._act(job, verb="suspend")

    async def resume(self, job: JobRef) -> Job:
        return await self._act(job, verb="resume")

    async def metrics(self, job: JobRef) -> list[Series]:
        return await self._run(calls.of_job(job, call=calls.metrics))

    async def logs(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> AsyncIterator[LogLine]:
        """Lines of all ranks, or of one, as far as there are any; with `follow` until the job has ended."""
        async for page in self.log_pages(job, follow=follow, rank=rank, attempt=attempt, tail=tail, cursor=cursor):
            for line in page.lines:
                yield line

    async def log_pages(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> AsyncIterator[LogPage]:
        """As `logs`, a page at a time: each carries the cursor at which another reader goes on."""
        job_id = await self._run(calls.find_id(job))
        reader = LogReader(job_id, rank=rank, attempt=attempt, tail=tail, is_following=follow, cursor=cursor)
        while not reader.is_done:
            page = await self._send(reader.call())
            yield page
            await self._sleep(reader.take(page))

    async def log_page(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
        wait_seconds: int = 0,
    ) -> LogPage:
        """One answer of the log endpoint, for callers that keep the cursor themselves."""
        job_id = await self._run(calls.find_id(job))
        asked: dict[str, Any] = {"rank": rank, "attempt": attempt, "tail": tail, "cursor": cursor}
        return await self._send(calls.log_page(job_id, wait_seconds=wait_seconds, **asked))

    async def follow(
        self, job: JobRef, *, rank: int | None = None, tail: int | None = None, cursor: str | None = None
    ) -> AsyncIterator[LogLine | Job]:
        """Each line as it comes and, whenever its phase changes, the job; the last item is the job that has ended.

        A restart of the server in between is waited out, for up to five minutes; no line is lost or comes twice. Ends
        with a suspended job too.
        """
        async for seen in self.follow_pages(job, rank=rank, tail=tail, cursor=cursor):
            for item in lines_of(seen):
                yield item

    async def follow_pages(
        self, job: JobRef, *, rank: int | None = None, tail: int | None = None, cursor: str | None = None
    ) -> AsyncIterator[LogPage | Job]:
        """As `follow`, a page of lines at a time."""
        job_id = await self._run(calls.find_id(job))
        follower = Follower(LogReader(job_id, rank=rank, tail=tail, cursor=cursor, is_following=True))
        while not follower.is_done:
            seen = await self._send(follower.call())
            for news in follower.take(seen):
                yield news
            await self._sleep(follower.rest_seconds)

    async def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        """The finished job. Raises WaitTimeout after `timeout` seconds; the job goes on."""
        began = time.monotonic()
        look = calls.patient(calls.job(await self._run(calls.find_id(job))))
        while not (seen := await self._send(look)).is_finished:
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise too_late(seen, timeout=timeout)
            await self._sleep(wait_pause(waited, timeout=timeout))
        return seen

    async def me(self) -> Me:
        return await self._send(calls.me())

    async def queues(self) -> list[Queue]:
        return await self._run(whole(calls.queues()))

    async def login(self, username: str, *, password: str, name: str = "SDK") -> Login:
        """A new token, by password. `name` tells the user's tokens apart."""
        return await self._send(calls.login(username, password=password, name=name))

    async def _act(self, job: JobRef, *, verb: str) -> Job:
        return await self._run(calls.of_job(job, call=lambda job_id: calls.act(job_id, verb=verb)))

    async def _items(self, first: Call[Page[T]], *, limit: int | None) -> AsyncIterator[T]:
        """Page by page as they are needed."""
        following: Call[Page[T]] | None = first
        left = limit
        while following and left != 0:
            page = await self._send(following)
            items = page.items[:left]
            for item in items:
                yield item
            left, following = None if left is None else left - len(items), page.next

    async def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                call = flow.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = await self._send(call)

    async def _send(self, call: Call[T]) -> T:
        tried, rested = 1, 0.0
        while True:
            reply = await self._try(call)
            pause = self._wire.pause(call, reply=reply, tried=tried, rested=rested)
            if pause is None:
                return self._wire.read(call, reply=reply)
            self._on_retry(self._wire.retry(call, reply=reply, tried=tried, pause_seconds=pause))
            await self._sleep(pause)
            tried, rested = tried + 1, rested + pause

    async def _try(self, call: Call[Any]) -> Reply:
        try:
            return await self._http.request(**self._wire.request(call))
        except httpx.RequestError as error:
            return error
