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

from muster import calls, reading, sending
from muster.calls import Call, Flow, JobRef, Work
from muster.config import find_server
from muster.errors import MusterError
from muster.follow import LogReader, too_late, wait_pause
from muster.models import Event, Job, Login, LogLine, LogPage, Me, Queue, Rank, Series, Workspace
from muster.reading import CodeDiff, CodeFile
from muster.sending import Progress
from muster.wire import Reply, Wire

T = TypeVar("T")


class AsyncClient:
    """See `muster.client.Client`; `jobs` and `logs` are asynchronous iterators."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        self.url = found.url
        self._wire = Wire(found.url, found.token, timeout_seconds)
        self._http = httpx.AsyncClient(**self._wire.settings())
        self._sleep = sleep

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
        env: Mapping[str, str] | None = None,
        max_retries: int | None = None,
        priority: int | None = None,
        deadline_seconds: int | None = None,
        idempotency_key: str | None = None,
        progress: Progress | None = None,
    ) -> Job:
        """Send what is new in the folder, then submit.

        `directory=None` sends no code, `workspace` names one uploaded before; `progress` is told how many bytes of how
        many are sent. What is not given is the server's to
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
            env=env,
            max_retries=max_retries,
            priority=priority,
            deadline_seconds=deadline_seconds,
        )
        has_code = directory is not None and workspace is None
        code = sending.upload(directory or "", url=self.url, queue=queue, progress=progress) if has_code else None
        return await self._run(calls.submit(spec, code=code, key=idempotency_key or str(uuid.uuid4())))

    async def upload(
        self, directory: str | os.PathLike[str], *, queue: str | None = None, progress: Progress | None = None
    ) -> Workspace:
        """Send a folder for later jobs; name the queue they will go to when you belong to several teams."""
        return await self._run(sending.upload(directory, url=self.url, queue=queue, progress=progress))

    async def files(self, job: JobRef) -> list[CodeFile]:
        """What the job's code holds, sorted by path."""
        return await self._run(reading.files(job))

    async def file(self, job: JobRef, path: str) -> bytes:
        """One file of the job's code."""
        return await self._run(reading.file(job, path))

    async def workspace_diff(self, before: JobRef, after: JobRef) -> CodeDiff:
        """What changed in the code from one job to the other."""
        return await self._run(reading.diff(before, after))

    async def job(self, job: JobRef) -> Job:
        return await self._run(calls.find_job(job))

    async def jobs(
        self,
        *,
        phase: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Job]:
        """Newest first, page by page as they are needed; at most `limit`."""
        following: Call[calls.Page[Job]] | None = calls.jobs(
            phase=phase, queue=queue, name=name, limit=calls.page_size(limit)
        )
        left = limit
        while following and left != 0:
            page = await self._send(following)
            items = page.items[:left]
            for job in items:
                yield job
            left, following = None if left is None else left - len(items), page.next

    async def cancel(self, job: JobRef) -> Job:
        return await self._act(job, verb="cancel")

    async def suspend(self, job: JobRef) -> Job:
        return await self._act(job, verb="suspend")

    async def resume(self, job: JobRef) -> Job:
        return await self._act(job, verb="resume")

    async def resubmit(self, job: JobRef) -> Job:
        """A new job like this one."""
        return await self._act(job, verb="resubmit")

    async def ranks(self, job: JobRef) -> list[Rank]:
        return await self._run(calls.every(calls.ranks, ref=job))

    async def events(self, job: JobRef) -> list[Event]:
        return await self._run(calls.every(calls.events, ref=job))

    async def metrics(self, job: JobRef) -> list[Series]:
        return await self._run(calls.of_job(job, call=calls.metrics))

    async def logs(
        self, job: JobRef, *, follow: bool = False, rank: int | None = None, tail: int | None = None
    ) -> AsyncIterator[LogLine]:
        """Lines of all ranks, or of one, as far as there are any; with `follow` until the job has ended."""
        reader = LogReader(await self._run(calls.find_id(job)), rank=rank, tail=tail, is_following=follow)
        while not reader.is_done:
            page = await self._send(reader.call())
            for line in page.lines:
                yield line
            await self._sleep(reader.take(page))

    async def log_page(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
        wait_seconds: int = 0,
    ) -> LogPage:
        """One answer of the log endpoint, for callers that keep the cursor themselves."""
        job_id = await self._run(calls.find_id(job))
        return await self._send(calls.log_page(job_id, rank=rank, tail=tail, cursor=cursor, wait_seconds=wait_seconds))

    async def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        """The finished job. Raises WaitTimeout after `timeout` seconds; the job goes on."""
        began = time.monotonic()
        while not (seen := await self.job(job)).is_finished:
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise too_late(seen, timeout=timeout)
            job = seen
            await self._sleep(wait_pause(waited, timeout=timeout))
        return seen

    async def me(self) -> Me:
        return await self._send(calls.me())

    async def queues(self) -> list[Queue]:
        return await self._run(calls.whole(calls.queues()))

    async def login(self, username: str, *, password: str, name: str = "SDK") -> Login:
        """A new token, by password. `name` tells the user's tokens apart."""
        return await self._send(calls.login(username, password=password, name=name))

    async def _act(self, job: JobRef, *, verb: str) -> Job:
        return await self._run(calls.of_job(job, call=lambda job_id: calls.act(job_id, verb=verb)))

    async def _run(self, flow: Flow[T]) -> T:
        """Steps until the flow is done; what goes wrong in a step is the flow's to handle."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step)
                except MusterError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Call[Any] | Work[Any]) -> Any:
        if isinstance(step, Work):
            return await asyncio.to_thread(step.run)
        return await self._send(step)

    async def _send(self, call: Call[T]) -> T:
        for tried in range(1, call.tries + 1):
            reply = await self._try(call)
            pause = self._wire.pause(call, reply=reply, tried=tried)
            if pause is None:
                break
            await self._sleep(pause)
        return self._wire.read(call, reply=reply)

    async def _try(self, call: Call[Any]) -> Reply:
        try:
            content = {} if call.on_sent is None else {"content": self._pieces(call)}
            return await self._http.request(**{**self._wire.request(call), **content})
        except httpx.TransportError as error:
            return error

    async def _pieces(self, call: Call[Any]) -> AsyncIterator[bytes]:
        for piece in self._wire.pieces(call):
            yield piece
