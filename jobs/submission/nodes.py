"""Exclude a node of a cluster: checked against what the cluster says of its nodes, where it says it."""

from accounts.models import User
from common.errors import InvalidInput, Problem
from jobs import clusters
from jobs.clusters import HasNodes
from queues import excluded
from queues.models import ExcludedNode


def with_nodes() -> list[str]:
    """Return the clusters that have nodes to exclude."""
    return [alias for alias in clusters.names() if clusters.backend(alias).MAKES_PODS]


def exclude(*, cluster: str, name: str, reason: str, by: User | None) -> ExcludedNode:
    """Raises NotAllowed, InvalidInput and Conflict, as `excluded.exclude`, and InvalidInput for what is no node there."""
    excluded.check(cluster=cluster, name=name, reason=reason, by=by)
    if cluster not in with_nodes():
        words = f"starts processes of one machine and has no nodes to exclude; these have: {', '.join(with_nodes()) or 'none'}"
        raise InvalidInput(Problem("cluster", cluster, words))
    found = clusters.get(cluster)
    if isinstance(found, HasNodes) and found.has_node(name) is False:
        words = f"is no node of cluster {cluster}; write its name as `kubectl get nodes` does"
        raise InvalidInput(Problem("name", name, words))
    return excluded.exclude(cluster=cluster, name=name, reason=reason, by=by)
