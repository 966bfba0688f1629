"""Which node a verdict blames, so that retries avoid it and administrators hear of it. Pure."""

import re
from collections.abc import Iterable

from jobs.core.failure_kinds import ECHOES, Kind

from .judging import AttemptFacts, Failure, RankFacts

BLAMED = frozenset({Kind.HARDWARE, Kind.NODE_LOST})
# Faults of NCCL at the rank's own end. Not among them: "Got completion with error 12", which the healthy end of a link
# prints as well, and ncclSystemError, which torch also raises where the other end closed a connection.
_OWN_END = re.compile(
    r"ncclInternalError|\bibv_\w{1,40} failed|Call to ibv_\w{1,40}|NET/IB ?: ?.{0,80}(port error|catastrophic|fatal async)"
    r"|NET/IB ?: ?No device found|No active port|NET/IB.{0,40}failed to (open|query|create)",
    re.IGNORECASE,
)


def node_of(failure: Failure | None, facts: AttemptFacts) -> str:
    """Return the node whose hardware or loss ended the attempt; empty if the verdict blames none."""
    if failure is None:
        return ""
    nodes = {one.name: one.node for one in facts.replicas}
    if failure.kind in BLAMED:
        return nodes.get(failure.replica, "")
    if failure.kind in ECHOES:
        return _of_network(facts.ranks, nodes)
    return ""


def _of_network(ranks: Iterable[RankFacts], nodes: dict[str, str]) -> str:
    """Return the only one of several nodes whose ranks report a fault of NCCL at their own end."""
    if len({node for node in nodes.values() if node}) < 2:
        return ""
    told = {nodes.get(one.replica, "") for one in ranks if _is_at_own_end(one)}
    return told.pop() if len(told) == 1 else ""


def _is_at_own_end(rank: RankFacts) -> bool:
    if rank.output is None:
        return False
    return any(_OWN_END.search(line) for line in (*rank.output.traceback, *rank.output.stderr))
