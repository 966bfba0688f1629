"""Builders of jobs that need only the fields relevant to a test. Steps go through the real store."""

import zlib
from datetime import timedelta
from typing import Any

from django.utils import timezone

from accounts.models import User
from jobs import services
from jobs.clusters.memory import MemoryCluster
from jobs.control import judgement
from jobs.control.reconciler import visit
from jobs.control.store import DjangoStore
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import Batch, Item
from jobs.ingest.agent_tokens import bearer
from jobs.ingest.handler import AgentAnswer, answer, refused
from jobs.models import Job
from jobs.scheduling.scheduler import schedule
from queues.models import Queue


class Clock:
    """A clock to pass as an argument: starts now, and moves only by `advance`."""

    def __init__(self):
        self.moment = timezone.now()

    def __call__(self):
        return self.moment

    def seconds(self) -> float:
        return self.moment.timestamp()

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class Lab:
    """A queue on a memory cluster, and methods that move its jobs through their phases."""

    def __init__(self, queue: Queue, user: User):
        self.queue, self.user, self.clock = queue, user, Clock()
        self.cluster = MemoryCluster(self.clock.seconds, start_seconds=0, run_seconds=1e9)

    def submit(self, **sent) -> Job:
        sent = {"command": "torchrun train.py", "nodes": 2, "nproc_per_node": 2, **sent}
        return services.submit(user=self.user, queue=self.queue, sent=sent)[0]

    def running(self, **sent) -> Job:
        job = self.submit(**sent)
        schedule()
        return self.visit(job, times=3)

    def visit(self, job: Job, times: int = 1, **ports: Any) -> Job:
        for _ in range(times):
            self.clock.advance(1)
            visit(
                job.pk, store=DjangoStore(), clusters=lambda _: self.cluster, clock=self.clock, owner="test",
                **{"judge": judgement.judge, **ports},
            )  # fmt: skip
        job.refresh_from_db()
        return job

    def finish(self, job: Job, *codes: int) -> Job:
        """End the job's replicas with these exit codes, and visit until it is at rest."""
        for index, code in enumerate(codes):
            self.cluster.finish(job.run, job.attempt, "worker", index=index, exit_code=code)
        return self.visit(job, times=4)


def identity(job: Job, index: int = 0, *, role: str = "worker") -> AgentIdentity:
    return AgentIdentity(job.pk, job.run, job.attempt, role, index)


def log_item(rank: int, first_line: int, lines: list[tuple[float, str]]) -> Item:
    """A log segment as an agent sends it; times in seconds since the epoch."""
    text = "".join(f"{int(at * 1000)} {line}\n" for at, line in lines)
    blob = zlib.compress(text.encode())
    return Item(
        "log",
        {
            "kind": "log", "rank": rank, "seq": first_line + 1, "first_line": first_line, "lines": len(lines),
            "first_at": lines[0][0], "last_at": lines[-1][0], "raw_bytes": len(text.encode()), "bytes": len(blob),
        },
        blob,
    )  # fmt: skip


def batch(seq: int, *items: Item) -> Batch:
    return Batch(seq, 0.0, items)


def deliver(token: str, body: bytes) -> AgentAnswer:
    """Send a batch as an agent does, bypassing the socket and threads of AgentDoor, within the test's transaction."""
    found = bearer(f"Bearer {token}")
    return answer(found, body) if found else refused(401, "this is not an agent's token")


def item(kind: str, **fields) -> Item:
    return Item(kind, {"kind": kind, **fields})
