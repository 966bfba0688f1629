"""What agents send: rank states, log segments, metrics and samples. One transaction per batch, guarded by its number.

A batch is applied once: the replica's row is locked and its `batch_seq` must be one less. What was applied before is
acknowledged and dropped; the bytes of its log segments are stored before the rows that name them.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import transaction
from django.utils import timezone

from controlplane import crash, doorbell
from controlplane.errors import InvalidInput, NotAllowed, Problem

from .agent_tokens import AgentIdentity
from .batches import LAUNCHER, MAX_SEGMENT_RAW_BYTES, Batch, Item, clean, moment
from .lifecycle import HOLDS_QUOTA
from .models import Job, LogSegment, MetricChunk, Rank, RankState, Replica

MAX_NAMES_PER_POINT = 50
SAMPLE_NAMES = {
    "cpu": "system/cpu",
    "rss_bytes": "system/memory",
    "gpu": "system/gpu",
    "gpu_mem_bytes": "system/gpu memory",
}


def apply(*, identity: AgentIdentity, batch: Batch) -> tuple[int, list[dict[str, Any]]]:
    """Apply one batch; returns the last number applied and what the agent should do.

    Raises NotAllowed when there is no such replica: its agent must stop.
    """
    path = _store_blobs(identity, batch)
    with crash.atomic("ingest.apply"):
        replica = Replica.objects.select_for_update(of=("self",), no_key=True).select_related("job").filter(
            job_id=identity.job, job__uid=identity.run.partition("-")[2], attempt=identity.attempt, role=identity.role,
            index=identity.index,
        ).first()  # fmt: skip
        if replica is None:
            raise NotAllowed("this attempt is not known here; the agent ends its replica")
        if batch.seq == replica.batch_seq + 1:
            _Writer(replica, path).write(batch)
            replica.batch_seq = batch.seq
            Replica.objects.filter(pk=replica.pk).update(batch_seq=batch.seq, last_batch_at=timezone.now())
    return replica.batch_seq, _commands(replica)


def _commands(replica: Replica) -> list[dict[str, Any]]:
    """An agent whose attempt is over is told to stop in every answer."""
    job = replica.job
    is_over = replica.attempt != job.attempt or job.phase not in HOLDS_QUOTA
    return [{"do": "stop"}] if is_over else []


def _wake(job: int) -> None:
    with crash.around("ingest.wake"):
        Job.objects.filter(pk=job, finished_at=None).update(next_reconcile_at=timezone.now())
    doorbell.poke_now("jobs.reconcile", job)


def _store_blobs(identity: AgentIdentity, batch: Batch) -> str:
    """All segments of a batch as one stored file. Written first: a row must never name bytes that are not there."""
    data = b"".join(item.blob for item in batch.items)
    if not data:
        return ""
    path = f"logs/{identity.run}/{identity.attempt}/{identity.role}-{identity.index}-{batch.seq}.z"
    with crash.around("ingest.blobs"):
        return storages["logs"].save(path, ContentFile(data))


class _Writer:
    """One batch on its way into rows; gathers what can be written together."""

    def __init__(self, replica: Replica, path: str):
        self.replica, self.path, self.offset = replica, path, 0
        self.ranks = {rank.rank: rank for rank in Rank.objects.filter(replica=replica).select_for_update(no_key=True)}
        self.touched: dict[int, set[str]] = defaultdict(set)
        self.segments: list[LogSegment] = []
        self.series: dict[tuple[int, str], MetricChunk] = {}
        self.news: set[str] = set()

    def write(self, batch: Batch) -> None:
        kinds: dict[str, Callable[[Item], None]] = {
            "replica": self._replica, "rank": self._rank, "log": self._log, "gap": self._log,
            "metrics": self._metrics, "sample": self._sample,
        }  # fmt: skip
        for item in batch.items:
            if item.kind in kinds:  # an agent one release newer may say more; that is not an error
                kinds[item.kind](item)
        LogSegment.objects.bulk_create(self.segments, batch_size=500)
        MetricChunk.objects.bulk_create(self.series.values(), batch_size=500)
        for number, names in self.touched.items():
            self.ranks[number].save(update_fields=sorted(names))
        for what in sorted(self.news):
            doorbell.hint(job=self.replica.job_id, team=self.replica.job.team_id, what=what)

    def _replica(self, item: Item) -> None:
        """The agent's word is a doorbell here: the reconciler looks at the cluster itself.

        After the commit, because the reconciler locks a job before its replicas and we hold a replica.
        """
        job = self.replica.job_id
        transaction.on_commit(lambda: _wake(job))

    def _rank(self, item: Item) -> None:
        rank = self._known(item)
        state = item.text("state", 20)
        if state not in RankState.values:
            raise InvalidInput(Problem("rank.state", state, f"must be one of {', '.join(RankState.values)}"))
        at = item.time()
        if state == RankState.RUNNING:
            self._set(
                rank, state=state, pid=item.optional("pid"), started_at=at, ended_at=None, exit_code=None, signal=None
            )
        else:
            signal = item.optional("signal")
            self._set(
                rank, state=state, ended_at=at, signal=signal, exit_code=None if signal else item.optional("exit_code"),
                error_at=item.time("error_at"), is_connection_error=item.flag("is_connection_error"),
                is_stopped=item.flag("is_stopped"),
            )  # fmt: skip
        self.news |= {"ranks"}

    def _log(self, item: Item) -> None:
        number = item.number("rank", LAUNCHER)
        lines, first = item.number("lines", 0, 2**31 - 1), item.number("first_line")
        last_at = item.time("last_at") or timezone.now()
        self.segments.append(
            LogSegment(
                job_id=self.replica.job_id, attempt=self.replica.attempt, replica=self.replica, rank=number, lines=lines,
                first_line=first, first_at=item.time("first_at") or last_at, last_at=last_at,
                raw_bytes=item.number("raw_bytes", 0, MAX_SEGMENT_RAW_BYTES if item.kind == "log" else 2**31 - 1),
                path=self.path if item.kind == "log" else "", offset=self.offset, size_bytes=len(item.blob),
            )
        )  # fmt: skip
        self.offset += len(item.blob)
        if number != LAUNCHER:
            self._set(self._known(item), last_line_at=last_at, lines=first + lines)
        self.news |= {"logs"}

    def _metrics(self, item: Item) -> None:
        rank = self._reporter(item)
        points = item.fields.get("points")
        for entry in points if isinstance(points, list) else []:
            at, step, values = _point(entry)
            for name, value in list(values.items())[:MAX_NAMES_PER_POINT]:
                if value is not None and math.isfinite(value):  # JSON, and so every chart and script, knows no NaN
                    self._add(rank, clean(str(name))[:60], step, float(value), at)
            if step is not None:
                self._set(rank, step=step)
        self.news |= {"metrics", "ranks"}

    def _sample(self, item: Item) -> None:
        rank, at = self._known(item), item.time() or timezone.now()
        values = {name: item.real(name) for name in SAMPLE_NAMES}
        self._set(
            rank,
            **{
                name: int(value) if value is not None and name.endswith("bytes") else value
                for name, value in values.items()
            },
        )
        for name, value in values.items():
            if value is not None:
                self._add(rank, SAMPLE_NAMES[name], None, value, at.timestamp())
        self.news |= {"ranks", "metrics"}

    def _reporter(self, item: Item) -> Rank:
        """Who reports. A process that knows no RANK (-1) speaks for the first rank of its replica."""
        if item.number("rank", LAUNCHER) == LAUNCHER and self.ranks:
            return self.ranks[min(self.ranks)]
        return self._known(item)

    def _known(self, item: Item) -> Rank:
        number = item.number("rank")
        if number not in self.ranks:
            raise InvalidInput(Problem(f"{item.kind}.rank", number, "does not belong to this replica"))
        return self.ranks[number]

    def _set(self, rank: Rank, **values: Any) -> None:
        for name, value in values.items():
            setattr(rank, name, value)
        self.touched[rank.rank] |= set(values)

    def _add(self, rank: Rank, name: str, step: int | None, value: float, at: float) -> None:
        chunk = self.series.get((rank.rank, name))
        if chunk is None:
            chunk = MetricChunk(
                job_id=self.replica.job_id,
                attempt=self.replica.attempt,
                rank=rank.rank,
                name=name,
                times=[],
                steps=[],
                values=[],
            )
            self.series[rank.rank, name] = chunk
        chunk.times.append(moment(at).timestamp())
        chunk.steps.append(step)
        chunk.values.append(value)


def _point(entry: Any) -> tuple[float, int | None, dict[str, float | None]]:
    """[time, step or null, {name: number}]; a value that was not finite comes as null."""
    match entry:
        case [int() | float() as at, None | int() as step, dict() as values] if all(
            value is None or (isinstance(value, int | float) and not isinstance(value, bool))
            for value in values.values()
        ):
            return float(at), step, values
    raise InvalidInput(Problem("metrics.points", None, "each must be [time, step or null, {name: number}]"))
