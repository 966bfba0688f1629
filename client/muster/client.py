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

from muster import calls
from muster.async_client import AsyncClient
from muster.call import Call, Flow, Page, whole
from muster.calls import JobRef
from muster.config import find_server
from muster.follow import Follower, LogReader, lines_of, too_late, wait_pause
from muster.models import Job, Login, LogLine, LogPage, Me, Queue, Series, Workspace
from muster.operations import Operations
from muster.wire import Reply, Retry, Wire
from muster.workspace import pack

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")


class Client(Operations):
    """One server. Without arguments the environment (MUSTER_URL, MUSTER_TOKEN) or the current saved login decides."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        server: str | None = None,
        timeout_seconds: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
        on_retry: Callable[[Retry], None] = lambda retry: None,
    ) -> None:
        found = find_server(url=url, token=token, name=server)
        self.url = found.url
        self._wire = Wire(found.url, found.token, timeout_seconds)
        self._http = httpx.Client(**self._wire.settings())
        self._sleep = sleep
        self._on_retry = on_retry

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
        packed = None if directory is None or workspace is not None else pack(directory)
        return self._run(calls.submit(spec, pack=packed, key=idempotency_key or str(uuid.uuid4())))

    def upload(self, directory: str | os.PathLike[str], *, queue: str | None = None) -> Workspace:
        """Send a folder for later jobs; name the queue they will go to when you belong to several teams."""
        return self._send(calls.upload(pack(directory), queue=queue))

    def job(self, job: JobRef) -> Job:
        return self._run(calls.find_job(job))

    def cancel(self, job: JobRef) -> Job:
        return self._act(job, verb="cancel")

    def suspend(self, job: JobRef) -> Job:
        return self._act(job, verb="suspend")

    def resume(self, job: JobRef) -> Job:
        return self._act(job, verb="resume")

    def metrics(self, job: JobRef) -> list[Series]:
        return self._run(calls.of_job(job, call=calls.metrics))

    def logs(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[LogLine]:
        """Lines of all ranks, or of one, as far as there are any; with `follow` until the job has ended."""
        for page in self.log_pages(job, follow=follow, rank=rank, attempt=attempt, tail=tail, cursor=cursor):
            yield from page.lines

    def log_pages(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[LogPage]:
        """As `logs`, a page at a time: each carries the cursor at which another reader goes on."""
        job_id = self._run(calls.find_id(job))
        reader = LogReader(job_id, rank=rank, attempt=attempt, tail=tail, is_following=follow, cursor=cursor)
        while not reader.is_done:
            page = self._send(reader.call())
            yield page
            self._sleep(reader.take(page))

    def log_page(
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
        job_id = self._run(calls.find_id(job))
        asked: dict[str, Any] = {"rank": rank, "attempt": attempt, "tail": tail, "cursor": cursor}
        return self._send(calls.log_page(job_id, wait_seconds=wait_seconds, **asked))

    def follow(
        self, job: JobRef, *, rank: int | None = None, tail: int | None = None, cursor: str | None = None
    ) -> Iterator[LogLine | Job]:
        """Each line as it comes and, whenever its phase changes, the job; the last item is the job that has ended.

        A restart of the server in between is waited out, for up to five minutes; no line is lost or comes twice. Ends
        with a suspended job too.
        """
        for seen in self.follow_pages(job, rank=rank, tail=tail, cursor=cursor):
            yield from lines_of(seen)

    def follow_pages(
        self, job: JobRef, *, rank: int | None = None, tail: int | None = None, cursor: str | None = None
    ) -> Iterator[LogPage | Job]:
        """As `follow`, a page of lines at a time."""
        job_id = self._run(calls.find_id(job))
        follower = Follower(LogReader(job_id, rank=rank, tail=tail, cursor=cursor, is_following=True))
        while not follower.is_done:
            seen = self._send(follower.call())
            yield from follower.take(seen)
            self._sleep(follower.rest_seconds)

    def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        """The finished job. Raises WaitTimeout after `timeout` seconds; the job goes on."""
        began = time.monotonic()
        look = calls.patient(calls.job(self._run(calls.find_id(job))))
        while not (seen := self._send(look)).is_finished:
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise too_late(seen, timeout=timeout)
            self._sleep(wait_pause(waited, timeout=timeout))
        return seen

    def me(self) -> Me:
        return self._send(calls.me())

    def queues(self) -> list[Queue]:
        return self._run(whole(calls.queues()))

    def login(self, username: str, *, password: str, name: str = "SDK") -> Login:
        """A new token, by password. `name` tells the user's tokens apart."""
        return self._send(calls.login(username, password=password, name=name))

    def _act(self, job: JobRef, *, verb: str) -> Job:
        return self._run(calls.of_job(job, call=lambda job_id: calls.act(job_id, verb=verb)))

    def _items(self, first: Call[Page[T]], *, limit: int | None) -> Iterator[T]:
        """Page by page as they are needed."""
        following: Call[Page[T]] | None = first
        left = limit
        while following and left != 0:
            page = self._send(following)
            items = page.items[:left]
            yield from items
            left, following = None if left is None else left - len(items), page.next

    def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                call = flow.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            answer = self._send(call)

    def _send(self, call: Call[T]) -> T:
        tried, rested = 1, 0.0
        while True:
            reply = self._try(call)
            pause = self._wire.pause(call, reply=reply, tried=tried, rested=rested)
            if pause is None:
                return self._wire.read(call, reply=reply)
            self._on_retry(self._wire.retry(call, reply=reply, tried=tried, pause_seconds=pause))
            self._sleep(pause)
            tried, rested = tried + 1, rested + pause

    def _try(self, call: Call[Any]) -> Reply:
        try:
            return self._http.request(**self._wire.request(call))
        except httpx.RequestError as error:
            return error
