"""Rows of places that get another replica within the attempt of an elastic job, as the store reads and writes them."""

from datetime import datetime
from typing import Any

from django.db.models import F, Max

from jobs.core.batch import LAUNCHER
from jobs.core.replacement import MOST, Key, ReplicaPlace
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, Seen, describe_end
from jobs.models import Job, LogSegment, RankState, Replica

# Ranks of the new one, before it says anything. Their steps and lines stay: they are of the place.
RANKS_ANEW: dict[str, Any] = {
    "state": RankState.WAITING, "pid": None, "world_rank": None, "world_size": None, "exit_code": None, "signal": None, "error": None,
    "restarts": 0, "started_at": None, "ended_at": None, "error_at": None, "is_connection_error": False, "is_stopped": False, "cpu": None,
    "rss_bytes": None, "gpu": None, "gpu_mem_bytes": None,
}  # fmt: skip


def of(job: Job) -> dict[Key, ReplicaPlace]:
    """Those that were given anew in this attempt. A job that is not elastic has none, and costs no query."""
    if job.min_nodes is None or not job.attempt:
        return {}
    rows = Replica.objects.filter(job=job, attempt=job.attempt, incarnation__gt=0)
    return {
        (row.role, row.index): ReplicaPlace(row.incarnation, row.replaced_at, row.applied_at)
        for row in rows
        if row.replaced_at
    }


def anew(row: Replica, now: datetime) -> dict[str, Any]:
    """What the row becomes. From then on nothing that the agent before says is taken; its lines stay, and the next one's are
    counted on from there. The row must be locked: a batch of the one before may be on its way.
    """
    number = row.incarnation + 1
    plain = row.name.removesuffix(f"-r{row.incarnation}")
    return {
        "incarnation": number, "replaced_at": now, "applied_at": None, "lines_before": _lines(row), "name": f"{plain}-r{number}",
        "node": "", "batch_seq": 0, "last_batch_at": None, "unexpected_ranks": {}, "unexpected_lines": 0, "seen_version": 0, "seen_at": None, "state": ReplicaState.PENDING, "reason": "", "exit_code": None,
        "signal": None, "started_at": None, "ended_at": None,
    }  # fmt: skip


def explain(row: Replica, seen: Seen) -> str:
    """Why it is replaced, in words."""
    was = next((one for one in seen.replicas if (one.role, one.index) == (row.role, row.index)), None)
    if was is None or was.state not in ENDED:  # nothing is there any more; the row has what was said before
        reason = row.reason or "its process or pod is gone"
        was = ReplicaSeen(row.role, row.index, ReplicaState.LOST, reason=reason)
    return f"{describe_end(was)}; it comes back within the attempt, {row.incarnation + 1} of at most {MOST} times"


def _lines(row: Replica) -> dict[str, int]:
    """How many lines of each stream there are. What comes next has these numbers and more."""
    lines = {str(rank): count for rank, count in row.ranks.values_list("rank", "lines") if count}
    launcher = LogSegment.objects.filter(replica=row, rank=LAUNCHER).aggregate(end=Max(F("first_line") + F("lines")))
    return {**lines, **({str(LAUNCHER): launcher["end"]} if launcher["end"] else {})}
