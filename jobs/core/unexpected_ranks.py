"""Ranks that an agent reports although its replica does not have them: what is kept, and what to advise. Pure.

A job of one process whose command starts `torchrun --nproc_per_node=4` has three of them, and so has a helper process
with a RANK of its own. Their lines belong to the launcher's log, their states are kept with the replica, and their
metrics are dropped: there is no row that these could belong to.
"""

from collections.abc import Mapping
from typing import Any

MOST = 64  # kept per replica; a command that starts more has shown enough
ABOUT = "Unexpected ranks: "  # begins the note in the job's history


def with_rank(kept: Mapping[str, Any], rank: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a replica's unexpected ranks after an item about one of them."""
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
    return {**kept, key: {**before, **{name: value for name, value in values.items() if value is not None}}}


def rows(kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return them as shown to users, lowest rank first."""
    return [{"rank": int(rank), **kept[rank]} for rank in sorted(kept, key=int)]


def advice(kept: Mapping[str, Any], *, replica: str, processes: int, world: int) -> str:
    """Return what a user should know and change. `processes` are expected in the replica, `world` in the job."""
    highest = max(int(rank) for rank in kept)
    local = max(_local_size(one) for one in kept.values())
    whose = f"this job's {world} processes" if highest >= world else f"the {processes} processes of {replica}"
    cure = (
        f"set nproc_per_node to {local}"
        if local > processes
        else "unset RANK in processes that are not ranks of this job"
    )
    return (
        f"rank {highest} is not one of {whose}; {cure}. Its lines are in the launcher's log, its metrics are not kept"
    )


def _local_size(one: Mapping[str, Any]) -> int:
    """Return how many processes its launcher starts in the replica, as far as the rank shows it."""
    return max(one.get("local_world_size") or 0, (one.get("local_rank") or 0) + 1)
