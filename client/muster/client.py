"""The Python SDK.

    with Client() as muster:
        job = muster.submit("torchrun train.py", queue="research", nodes=2, nproc_per_node=4)
        for line in muster.logs(job, follow=True):
            print(line.rank, line.text)

A job is given as a `Job`, an id, or a name (the newest of that name). Everything raises `muster.errors.MusterError`.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, TypeVar

import httpx

from muster import calls, reading, sending
from muster.async_client import AsyncClient
from muster.calls import Call, Flow, JobRef, Work
from muster.config import find_server
from muster.errors import MusterError
from muster.follow import LogReader, too_late, wait_pause
from muster.models import Event, Job, Login, LogLine, LogPage, Me, Queue, Rank, Series, Workspace
from muster.reading import CodeDiff, CodeFile
from muster.sending import Progress
from muster.wire import Reply, Wire

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")


class Client:
    """One server. Without arguments the environment (MUSTER_URL, MUSTER_TOKEN) or the current saved login decides."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        self.url = found.url
        self._wire = Wire(found.url, found.token, timeout_seconds)
        self._http = httpx.Client(**self._wire.settings())
        self._sleep = sleep

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(
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
        return self._run(calls.submit(spec, code=code, key=idempotency_key or str(uuid.uuid4())))

    def upload(
        self, directory: str | os.PathLike[str], *, queue: str | None = None, progress: Progress | None = None
    ) -> Workspace:
        """Send a folder for later jobs; name the queue they will go to when you belong to several teams."""
        return self._run(sending.upload(directory, url=self.url, queue=queue, progress=progress))

    def files(self, job: JobRef) -> list[CodeFile]:
        """What the job's code holds, sorted by path."""
        return self._run(reading.files(job))

    def file(self, job: JobRef, path: str) -> bytes:
        """One file of the job's code."""
        return self._run(reading.file(job, path))

    def workspace_diff(self, before: JobRef, after: JobRef) -> CodeDiff:
        """What changed in the code from one job to the other."""
        return self._run(reading.diff(before, after))

    def job(self, job: JobRef) -> Job:
        return self._run(calls.find_job(job))

    def jobs(
        self,
        *,
        phase: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Job]:
        """Newest first, page by page as they are needed; at most `limit`."""
        following: Call[calls.Page[Job]] | None = calls.jobs(
            phase=phase, queue=queue, name=name, limit=calls.page_size(limit)
        )
        left = limit
        while following and left != 0:
            page = self._send(following)
            items = page.items[:left]
            yield from items
            left, following = None if left is None else left - len(items), page.next

    def cancel(self, job: JobRef) -> Job:
        return self._act(job, verb="cancel")

    def suspend(self, job: JobRef) -> Job:
        return self._act(job, verb="suspend")

    def resume(self, job: JobRef) -> Job:
        return self._act(job, verb="resume")

    def resubmit(self, job: JobRef) -> Job:
        """A new job like this one."""
        return self._act(job, verb="resubmit")

    def ranks(self, job: JobRef) -> list[Rank]:
        return self._run(calls.every(calls.ranks, ref=job))

    def events(self, job: JobRef) -> list[Event]:
        return self._run(calls.every(calls.events, ref=job))

    def metrics(self, job: JobRef) -> list[Series]:
        return self._run(calls.of_job(job, call=calls.metrics))

    def logs(
        self, job: JobRef, *, follow: bool = False, rank: int | None = None, tail: int | None = None
    ) -> Iterator[LogLine]:
        """Lines of all ranks, or of one, as far as there are any; with `follow` until the job has ended."""
        reader = LogReader(self._run(calls.find_id(job)), rank=rank, tail=tail, is_following=follow)
        while not reader.is_done:
            page = self._send(reader.call())
            yield from page.lines
            self._sleep(reader.take(page))

    def log_page(
        self,
        job: JobRef,
        *,
        rank: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
        wait_seconds: int = 0,
    ) -> LogPage:
        """One answer of the log endpoint, for callers that keep the cursor themselves."""
        job_id = self._run(calls.find_id(job))
        return self._send(calls.log_page(job_id, rank=rank, tail=tail, cursor=cursor, wait_seconds=wait_seconds))

    def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        """The finished job. Raises WaitTimeout after `timeout` seconds; the job goes on."""
        began = time.monotonic()
        while not (seen := self.job(job)).is_finished:
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise too_late(seen, timeout=timeout)
            job = seen
            self._sleep(wait_pause(waited, timeout=timeout))
        return seen

    def me(self) -> Me:
        return self._send(calls.me())

    def queues(self) -> list[Queue]:
        return self._run(calls.whole(calls.queues()))

    def login(self, username: str, *, password: str, name: str = "SDK") -> Login:
        """A new token, by password. `name` tells the user's tokens apart."""
        return self._send(calls.login(username, password=password, name=name))

    def _act(self, job: JobRef, *, verb: str) -> Job:
        return self._run(calls.of_job(job, call=lambda job_id: calls.act(job_id, verb=verb)))

    def _run(self, flow: Flow[T]) -> T:
        """Steps until the flow is done; what goes wrong in a step is the flow's to handle."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step)
                except MusterError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Call[Any] | Work[Any]) -> Any:
        return step.run() if isinstance(step, Work) else self._send(step)

    def _send(self, call: Call[T]) -> T:
        for tried in range(1, call.tries + 1):
            reply = self._try(call)
            pause = self._wire.pause(call, reply=reply, tried=tried)
            if pause is None:
                break
            self._sleep(pause)
        return self._wire.read(call, reply=reply)

    def _try(self, call: Call[Any]) -> Reply:
        try:
            content = {} if call.on_sent is None else {"content": self._wire.pieces(call)}
            return self._http.request(**{**self._wire.request(call), **content})
        except httpx.TransportError as error:
            return error
