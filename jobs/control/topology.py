"""Note where replicas landed: their nodes' values of the levels that their queue's template names. Repeated by beat."""

import logging
from collections import defaultdict
from collections.abc import Mapping

from common import faultpoints
from common.errors import InvalidInput, Unreachable
from jobs import clusters
from jobs.clusters import HasNodes
from jobs.core.lifecycle import Phase
from jobs.models import Replica
from jobs.submission import pods

log = logging.getLogger(__name__)
MOST = 2000  # replicas of one turn


def note_all() -> int:
    """Note it for replicas that run and have no note yet. Return of how many it is known now."""
    rows = Replica.objects.filter(
        topology__isnull=True,
        closed_at=None,
        job__phase=Phase.RUNNING,
        job__template__content__template__has_key="topology",
    ).exclude(node="")
    found: dict[str, dict[int, list[Replica]]] = defaultdict(lambda: defaultdict(list))  # by cluster and job
    for row in rows.select_related("job__template", "job__queue").order_by("-pk")[:MOST]:
        found[row.job.queue.cluster][row.job_id].append(row)
    return sum(_note(cluster, jobs) for cluster, jobs in found.items())


def _note(alias: str, jobs: Mapping[int, list[Replica]]) -> int:
    nodes = {row.node for rows in jobs.values() for row in rows}
    try:
        cluster = clusters.get(alias)
        labels = cluster.node_labels(nodes) if isinstance(cluster, HasNodes) else {}
    except (Unreachable, InvalidInput) as error:
        log.info("where replicas landed on %s is not known: %s", alias, error)
        return 0
    count = 0
    for rows in jobs.values():
        levels = pods.levels_of(rows[0].job)
        for node in {row.node for row in rows} & labels.keys():
            value = {level: labels[node][level] for level in levels if level in labels[node]}
            of_node = [row.pk for row in rows if row.node == node]
            # A replica that was replaced meanwhile is on another node.
            with faultpoints.around("topology.note"):
                count += Replica.objects.filter(pk__in=of_node, node=node).update(topology=value)
    return count
