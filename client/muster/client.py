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
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from muster.async_client import AsyncClient
from muster.code import sending
from muster.code.sending import Progress
from muster.jobs import calls
from muster.jobs.calls import JobRef
from muster.jobs.follow import too_late, wait_pause
from muster.jobs.logs import Logs
from muster.jobs.models import Job, Workspace
from muster.operations import Operations

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")


class Client(Operations, Logs):
    """One server, chosen by the arguments, else the environment (MUSTER_URL, MUSTER_TOKEN), else the saved login."""

    def submit(
        self,
        command: str | Sequence[str],
        *,
        queue: str,
        directory: str | os.PathLike[str] | None = ".",
        workspace: int | None = None,
        nodes: int | None = None,
        min_nodes: int | None = None,
        nproc_per_node: int | None = None,
        gpus: int | None = None,
        name: str | None = None,
        framework: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        volumes: Sequence[str] | None = None,
        notify: Sequence[str] | None = None,
        grace_seconds: int | None = None,
        start_timeout_seconds: int | None = None,
        max_retries: int | None = None,
        priority: int | None = None,
        deadline_seconds: int | None = None,
        fields: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        progress: Progress | None = None,
    ) -> Job:
        """Send what is new in the folder, then submit.

        `directory=None` sends no code, `workspace` is the id of one uploaded before; `progress` is called with the
        bytes sent and the bytes in total. The server decides what is not given. The same `idempotency_key` never makes
        a second job. `fields` are further fields of the job that this server knows (`job_fields()`), by name.
        """
        spec = calls.job_spec(
            command,
            queue=queue,
            workspace=workspace,
            nodes=nodes,
            min_nodes=min_nodes,
            nproc_per_node=nproc_per_node,
            gpus=gpus,
            name=name,
            framework=framework,
            env=env,
            secrets=secrets,
            volumes=volumes,
            notify=notify,
            grace_seconds=grace_seconds,
            start_timeout_seconds=start_timeout_seconds,
            max_retries=max_retries,
            priority=priority,
            deadline_seconds=deadline_seconds,
            **(fields or {}),
        )
        has_code = directory is not None and workspace is None
        code = sending.upload(directory or "", url=self.url, queue=queue, progress=progress) if has_code else None
        return self._run(calls.submit(spec, code=code, key=idempotency_key or str(uuid.uuid4())))

    def upload(
        self, directory: str | os.PathLike[str], *, queue: str | None = None, progress: Progress | None = None
    ) -> Workspace:
        """Send a folder for later jobs; name the queue they will go to if you belong to several teams."""
        return self._run(sending.upload(directory, url=self.url, queue=queue, progress=progress))

    def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        """Return the job once it has ended or is suspended.

        Raises WaitTimeout after `timeout` seconds; the job goes on.
        """
        began = time.monotonic()
        look = calls.patient(calls.job(self._run(calls.find_id(job))))
        while not ((seen := self._send(look)).is_finished or seen.is_suspended):
            waited = time.monotonic() - began
            if timeout is not None and waited >= timeout:
                raise too_late(seen, timeout=timeout)
            self._sleep(wait_pause(waited, timeout=timeout))
        return seen
