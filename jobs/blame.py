"""Which rank failed first, and what it said last.

The earliest own failure counts, by the shim's clock. Ranks that their launcher ended never count; ranks that died
of a lost connection count only if nothing else failed: they are the echo of somebody else's end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from . import exits
from .logs import LAUNCHER, last_lines
from .models import Job, Rank, RankState, Replica
from .verdict import ReplicaState

LAST_LINES = 20
_EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Failure:
    """`rank` is None when a replica failed before it had ranks. One of `exit_code` and `signal` is set, or neither."""

    rank: int | None
    replica: str
    exit_code: int | None
    signal: int | None
    at: datetime | None
    explanation: str
    last_lines: list[str] = field(default_factory=list)


def first_failure(job: Job, attempt: int | None = None) -> Failure | None:
    """What made this attempt fail (default: the newest one); None while nothing failed."""
    attempt = attempt or job.attempt
    culprit = first_failing_rank(job, attempt)
    if culprit is not None:
        return _of_rank(job, culprit)
    replica = Replica.objects.filter(
        job=job, attempt=attempt, state__in=[ReplicaState.FAILED, ReplicaState.LOST]
    ).order_by("-state", "ended_at", "role", "index").first()  # fmt: skip
    if replica is None or job.stop_reason in ("cancelled", "suspended", "preempted", "completed"):
        return None
    return _of_replica(job, replica)


def first_failing_rank(job: Job, attempt: int) -> Rank | None:
    """None also where a whole replica was lost, and the others only lost their connection to it."""
    failed = Rank.objects.filter(job=job, attempt=attempt, state=RankState.FAILED).select_related("replica")
    found = choose(failed)
    if found is None or not found.is_connection_error:
        return found
    lost = Replica.objects.filter(job=job, attempt=attempt, state=ReplicaState.LOST)
    return None if lost.exists() else found


def choose(failed: Iterable[Rank]) -> Rank | None:
    """The first failing rank among those that failed."""
    own = [rank for rank in failed if not rank.is_stopped]
    return min(
        own,
        key=lambda rank: (rank.is_connection_error, rank.error_at or rank.ended_at or _EVER, rank.rank),
        default=None,
    )


def explain(rank: Rank) -> str:
    return f"rank {rank.rank} {exits.explained(rank.exit_code, rank.signal)}"


def _of_rank(job: Job, rank: Rank) -> Failure:
    replica = f"{rank.replica.role}-{rank.replica.index}"
    return Failure(
        rank.rank, replica, rank.exit_code, rank.signal, rank.ended_at,
        explain(rank),
        last_lines(job=job, attempt=rank.attempt, rank=rank.rank, count=LAST_LINES),
    )  # fmt: skip


def _of_replica(job: Job, replica: Replica) -> Failure:
    name = f"{replica.role}-{replica.index}"
    words = replica.reason or exits.explained(replica.exit_code, replica.signal)
    return Failure(
        None, name, replica.exit_code, replica.signal, replica.ended_at, f"{name}: {words}",
        last_lines(job=job, attempt=replica.attempt, rank=LAUNCHER, count=LAST_LINES),
    )  # fmt: skip
