"""Rows of places that get another replica within the attempt of an elastic job. Called by the store, in its transactions."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import F, Max

from .batches import LAUNCHER
from .models import Job, JobEvent, LogSegment, Rank, RankState, Replica
from .replacing import MOST, Key, Place
from .verdict import ENDED, ReplicaSeen, ReplicaState, Seen, describe_end


def of(job: Job) -> dict[Key, Place]:
    """Those that were given anew in this attempt. A job that is not elastic has none, and costs no query."""
    if job.min_nodes is None or not job.attempt:
        return {}
    rows = Replica.objects.filter(job=job, attempt=job.attempt, incarnation__gt=0)
    return {
        (row.role, row.index): Place(row.incarnation, row.replaced_at, row.applied_at)
        for row in rows
        if row.replaced_at
    }


def give_anew(job: Job, keys: Iterable[Key], seen: Seen, now: datetime) -> None:
    """From here on nothing that the agent before says is taken. Its lines stay, and the next one's are counted on from there."""
    for role, index in keys:
        row = Replica.objects.select_for_update(no_key=True).get(
            job=job, attempt=job.attempt, role=role, index=index
        )  # fmt: skip
        was = next((one for one in seen.replicas if (one.role, one.index) == (role, index)), None)
        _tell(job, row, was, now)
        Replica.objects.filter(pk=row.pk).update(
            incarnation=F("incarnation") + 1, replaced_at=now, applied_at=None, lines_before=_lines(row),
            name=f"{job.run}-{job.attempt}-{role}-{index}-r{row.incarnation + 1}", node="", batch_seq=0,
            last_batch_at=None, seen_version=0, seen_at=None, state=ReplicaState.PENDING, reason="", exit_code=None, signal=None, started_at=None,
            ended_at=None,
        )  # fmt: skip
        Rank.objects.filter(replica=row).update(
            state=RankState.WAITING, pid=None, world_rank=None, world_size=None, exit_code=None, signal=None,
            started_at=None, ended_at=None, error_at=None, is_connection_error=False, is_stopped=False, cpu=None,
            rss_bytes=None, gpu=None, gpu_mem_bytes=None,
        )  # fmt: skip


def confirm(job: int, attempt: int, keys: Iterable[Key], now: datetime) -> None:
    for role, index in keys:
        Replica.objects.filter(job=job, attempt=attempt, role=role, index=index).update(applied_at=now)


def _tell(job: Job, row: Replica, was: ReplicaSeen | None, now: datetime) -> None:
    if was is None or was.state not in ENDED:  # nothing is there any more; the row has what was said before
        reason = row.reason or "its process or pod is gone"
        was = ReplicaSeen(row.role, row.index, ReplicaState.LOST, reason=reason)
    why = describe_end(was)
    words = f"{why}; it comes back within the attempt, {row.incarnation + 1} of at most {MOST} times"
    JobEvent.objects.create(job=job, at=now, kind="replaced", phase=job.phase, attempt=job.attempt, message=words)


def _lines(row: Replica) -> dict[str, int]:
    """How many lines of each stream there are. What comes next has these numbers and more."""
    lines = {str(rank): count for rank, count in row.ranks.values_list("rank", "lines") if count}
    launcher = LogSegment.objects.filter(replica=row, rank=LAUNCHER).aggregate(end=Max(F("first_line") + F("lines")))
    return {**lines, **({str(LAUNCHER): launcher["end"]} if launcher["end"] else {})}
