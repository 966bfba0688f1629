"""What the overview shows: which jobs need attention, and how long jobs waited. For the teams that a reader belongs to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Count, Exists, F, OuterRef, Q

from common.db import sql
from jobs.core.lifecycle import HOLDS_QUOTA, Phase
from jobs.core.silence import IDLE_AFTER, SILENT
from jobs.core.verdict import ReplicaState
from jobs.models import AttemptFailure, Job, Rank, RankState, Replica
from jobs.models.querysets import JobQuerySet
from queues.models import Queue

RECENT = timedelta(hours=24)
IDLE_LONG = timedelta(minutes=15)
WAITING_LONG = timedelta(hours=1)
UNUSED_LONG = timedelta(days=7)
NAMED = 5  # jobs of each kind
_MEDIANS = sql.load("jobs/sql/median_waits.sql")


@dataclass(frozen=True)
class Some:
    """Jobs of one kind: the first of them, and how many there are."""

    jobs: list[Job] = field(default_factory=list)
    count: int = 0

    @property
    def more(self) -> int:
        """How many are not among the first."""
        return self.count - len(self.jobs)


@dataclass(frozen=True)
class Attention:
    """`failed`: by kind of failure, the most frequent first; `idle`: GPUs without use for 15 minutes."""

    failed: list[tuple[str, int]]
    idle: Some
    silent: Some
    waiting: Some

    @property
    def is_needed(self) -> bool:
        return bool(self.failed or self.idle.count or self.silent.count or self.waiting.count)


def attention(jobs: JobQuerySet, *, now: datetime) -> Attention:
    """Return what needs attention among jobs that a reader may see. Seven queries."""
    running = jobs.filter(phase=Phase.RUNNING)
    ranks = Rank.objects.filter(
        job=OuterRef("pk"), attempt=OuterRef("attempt"), state=RankState.RUNNING, gpu_idle_since__lte=now - IDLE_LONG,
        replica__last_batch_at__gt=now - SILENT,
    )  # fmt: skip
    mute = Replica.objects.filter(
        job=OuterRef("pk"), attempt=OuterRef("attempt"), state=ReplicaState.RUNNING, last_batch_at__lt=now - SILENT
    )
    waits = jobs.waiting().filter(phase_since__lt=now - WAITING_LONG)
    return Attention(
        _failed(jobs, now), _some(running.filter(Exists(ranks))), _some(running.filter(Exists(mute))),
        _some(waits, "phase_since"),
    )  # fmt: skip


def idle(jobs: JobQuerySet, *, now: datetime) -> dict[tuple[str, str], int]:
    """Return how many GPUs of running jobs that a reader may see are idle, by cluster and team."""
    ranks = Rank.objects.filter(
        job__in=jobs.filter(phase=Phase.RUNNING), attempt=F("job__attempt"), state=RankState.RUNNING,
        gpu_idle_since__lte=now - IDLE_AFTER, replica__last_batch_at__gt=now - SILENT,
    )  # fmt: skip
    rows = ranks.order_by().values_list("job__queue__cluster", "job__team__name").annotate(count=Count("pk"))
    return {(cluster, team): count for cluster, team, count in rows}


def unused(queues: Iterable[Queue], *, now: datetime) -> list[Queue]:
    """Return open queues that have had quota for a week, of which no job has used any of it since."""
    since = now - UNUSED_LONG
    known = [one for one in queues if one.is_open and one.nominal and one.created_at < since]
    lately = Q(admitted_at__gte=since) | Q(admitted_at__isnull=False, finished_at__gte=since)
    recent = Job.objects.filter(lately | Q(phase__in=sorted(HOLDS_QUOTA)), queue__in=known)
    used = set(recent.order_by().values_list("queue", flat=True).distinct())
    return [one for one in known if one.pk not in used]


def median_waits(queues: Sequence[int], *, now: datetime) -> dict[int, tuple[float, int]]:
    """Return for queues from which jobs were admitted in 24 h: the median wait in seconds, and of how many jobs."""
    with connection.cursor() as cursor:
        cursor.execute(_MEDIANS, {"queues": list(queues), "since": now - RECENT})
        return {queue: (seconds, count) for queue, seconds, count in cursor.fetchall()}


def _failed(jobs: JobQuerySet, now: datetime) -> list[tuple[str, int]]:
    ended = jobs.filter(phase=Phase.FAILED, finished_at__gte=now - RECENT)
    newest = AttemptFailure.objects.filter(Q(job__in=ended), attempt=F("job__attempt"))
    found = newest.order_by().values_list("kind").annotate(count=Count("job", distinct=True))
    return sorted(found, key=lambda one: (-one[1], one[0]))


def _some(jobs: JobQuerySet, order: str = "-id") -> Some:
    shown = list(jobs.select_related("user", "queue").order_by(order)[: NAMED + 1])
    count = len(shown) if len(shown) <= NAMED else jobs.count()
    return Some(shown[:NAMED], count)
