"""Ranks that an agent reports although its replica does not have them: what is kept, and what to advise. Pure.

Ranks that nobody planned get rows up to twice the plan (`ingest/translate.py`). These are the others: a job of one
process whose command starts `torchrun --nproc_per_node=4` has two of them, and a helper process with a RANK of its own
is one. Their lines belong to the launcher's log, their states are kept with the replica, and their metrics are dropped:
there is no row that these could belong to.
"""

from collections.abc import Callable, Mapping
from typing import Any

MOST = 64  # kept per replica; a command that starts more has shown enough
ABOUT = "Unexpected ranks: "  # begins the note in the job's history
_ENDED = frozenset({"succeeded", "failed"})


def with_rank(kept: Mapping[str, Any], rank: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a replica's unexpected ranks after an item about one of them. An end is final, as it is for other ranks."""
    key = str(rank)
    if key not in kept and len(kept) >= MOST:
        return dict(kept)
    before = kept.get(key) or {
        "local_rank": None,
        "local_world_size": None,
        "state": None,
        "exit_code": None,
        "signal": None,
    }
    news = {name: value for name, value in values.items() if value is not None}
    if before["state"] in _ENDED:
        news = {name: value for name, value in news.items() if name not in ("state", "exit_code", "signal")}
    return {**kept, key: {**before, **news}}


def in_ended_replica(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a batch leaves of a replica that has ended: its unexpected ranks may gain an end, and never start.

    `before` and `after` are the replica's unexpected ranks without and with the batch.
    """
    return {
        rank: one if one["state"] in _ENDED else {**one, "state": before[rank]["state"] if rank in before else None}
        for rank, one in after.items()
    }


def rows(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return them as shown to users, lowest rank first."""
    return [{"rank": int(rank), **kept[rank]} for rank in sorted(kept, key=int)]


def advice(
    kept: Mapping[str, Any], *, replica: str, processes: int, world: int, more_ranks: Callable[[int], str]
) -> str:
    """Return what a user should know and change. `processes` are expected in the replica, `world` in the job.

    `more_ranks` is the job's framework's advice for a replica with more ranks.
    """
    highest = max(int(rank) for rank in kept)
    local = max(_local_size(one) for one in kept.values())
    whose = f"this job's {world} processes" if highest >= world else f"the {processes} processes of {replica}"
    cure = more_ranks(local) if local > processes else "unset RANK in processes that are not ranks of this job"
    return f"rank {highest} is not one of {whose}; {cure}. Its lines are in the log of the launcher, or of the rank that started it; its metrics are not kept"


def _local_size(one: Mapping[str, Any]) -> int:
    """Return how many processes its launcher starts in the replica, as far as the rank shows it."""
    return max(one.get("local_world_size") or 0, (one.get("local_rank") or 0) + 1)
