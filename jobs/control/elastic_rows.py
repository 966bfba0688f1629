"""Database rows of elastic places whose replica was replaced within the attempt, as read and written by the store."""

from datetime import datetime
from typing import Any

from django.db.models import F, Max

from jobs.core.batch import LAUNCHER
from jobs.core.replacement import GONE, MOST, Key, ReplicaPlace
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, Seen, describe_end
from jobs.models import Job, LogSegment, RankState, Replica

# Rank fields reset for the new replica before it reports. Steps and lines are kept: they belong to the place.
RANKS_ANEW: dict[str, Any] = {
    "state": RankState.WAITING, "pid": None, "world_rank": None, "world_size": None, "exit_code": None, "signal": None, "error": None,
    "restarts": 0, "started_at": None, "ended_at": None, "error_at": None, "is_connection_error": False, "is_stopped": False, "cpu": None,
    "rss_bytes": None, "gpu": None, "gpu_mem_bytes": None, "gpu_mem_total_bytes": None, "gpu_watts": None, "gpu_celsius": None,
    "gpu_ecc_errors": None, "gpu_xid": None, "nan_series": "", "nan_step": None,
}  # fmt: skip


def of(job: Job) -> dict[Key, ReplicaPlace]:
    """Return the places replaced in this attempt. Empty for a job that is not elastic, without a query."""
    if not job.is_elastic or not job.attempt:
        return {}
    rows = Replica.objects.filter(job=job, attempt=job.attempt, incarnation__gt=0)
    return {
        (row.role, row.index): ReplicaPlace(row.incarnation, row.replaced_at, row.applied_at)
        for row in rows
        if row.replaced_at
    }


def anew(row: Replica, now: datetime) -> dict[str, Any]:
    """Return the new column values of a replaced replica's row.

    Reports of the previous agent are refused from then on. Its lines stay, and the new agent's line numbers continue
    after them. The row must be locked: a batch of the previous agent may still be in flight.
    """
    number = row.incarnation + 1
    plain = row.name.removesuffix(f"-r{row.incarnation}")
    return {
        "incarnation": number, "replaced_at": now, "applied_at": None, "lines_before": _lines(row), "name": f"{plain}-r{number}",
        "node": "", "topology": None, "batch_seq": 0, "last_batch_at": None, "unexpected_ranks": {}, "unexpected_lines": 0, "seen_version": 0, "seen_at": None, "state": ReplicaState.PENDING, "reason": "", "exit_code": None,
        "signal": None, "started_at": None, "ended_at": None,
    }  # fmt: skip


def explain(row: Replica, seen: Seen) -> str:
    """Return a message that says why the replica is replaced."""
    was = next((one for one in seen.replicas if (one.role, one.index) == (row.role, row.index)), None)
    if was is None or was.state not in ENDED:  # nothing exists any longer; the row still has the last reported reason
        reason = row.reason or GONE
        was = ReplicaSeen(row.role, row.index, ReplicaState.LOST, reason=reason)
    return f"{describe_end(was)}; it is restarted within the attempt, {row.incarnation + 1} of at most {MOST} times"


def _lines(row: Replica) -> dict[str, int]:
    """Return the number of lines per stream; new lines are numbered from there on."""
    lines = {str(rank): count for rank, count in row.ranks.values_list("rank", "lines") if count}
    launcher = LogSegment.objects.filter(replica=row, rank=LAUNCHER).aggregate(end=Max(F("first_line") + F("lines")))
    return {**lines, **({str(LAUNCHER): launcher["end"]} if launcher["end"] else {})}
