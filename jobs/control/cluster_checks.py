"""Drive checks of clusters by pods: one step of each that is due. Repeated by beat, and by itself while there are any.

The row is written before a pod is made, and findings before the pods are deleted: a process that dies leaves no pod that
nobody knows, and the next one goes on where it was. What outlives even that is ended by its own deadline, and removed by
the next check.
"""

import logging
from datetime import datetime, timedelta

from common.errors import ClusterError, InvalidInput, Unreachable
from common.signals import doorbell
from jobs import clusters
from jobs.clusters import Inspected, Probes
from jobs.core import probing
from jobs.models import ClusterCheck
from jobs.submission import cluster_checks
from jobs.submission.cluster_checks import TASK

log = logging.getLogger(__name__)
MOST = 10  # checks in one turn
AFTER = timedelta(seconds=0.5)  # a check is due, the next turn comes
PAUSE = timedelta(seconds=30)  # until the deletion of pods is tried again
REMOVING = timedelta(hours=1)  # for which it is; they have ended by their deadline long before


def go_on(*, now: datetime) -> int:
    """Go one step on with every check that is due. Return how many there were."""
    pauses = [_step(row, now) for row in cluster_checks.unfinished(now, most=MOST) if cluster_checks.take(row, now=now)]
    if pauses:  # a turn without any is not the one that goes on
        doorbell.poke_now(TASK, after_seconds=(min(pauses) + AFTER).total_seconds())
    return len(pauses)


def _step(row: ClusterCheck, now: datetime) -> timedelta:
    """Go one step on. Return when the next one is due."""
    pause = cluster_checks.pause_of(row, now=now)
    if row.ended_at is None:
        found = _ask(row, now)
        if found is not None:
            cluster_checks.end(row, found, now=now)
            pause = cluster_checks.SOON
    elif _remove(row, now):
        cluster_checks.removed(row, now=now)
        return cluster_checks.SOON
    else:
        pause = PAUSE if now > row.ended_at + PAUSE else cluster_checks.SOON
    cluster_checks.release(row, now=now, pause=pause)
    return pause


def _ask(row: ClusterCheck, now: datetime) -> list[Inspected] | None:
    """Return the findings; None while there are none."""
    try:
        cluster = _cluster(row)
        return cluster.probe(cluster_checks.probe_of(row), is_late=probing.is_late(row.asked_at, now))
    except Unreachable as error:
        log.info("%s: %s", row, error)
        is_over = probing.is_given_up(row.asked_at, now)
        return [Inspected("server", "wrong", f"it did not answer: {error}")] if is_over else None
    except (ClusterError, InvalidInput, ValueError) as error:
        return [Inspected("pods", "wrong", str(error))]


def _remove(row: ClusterCheck, now: datetime) -> bool:
    """Return whether none of its pods is left, or nobody can delete them."""
    if not clusters.is_known(row.cluster):
        return True
    try:
        return _cluster(row).remove_probe(row.uid, cluster_checks.namespace_of(row))
    except (ClusterError, InvalidInput, ValueError) as error:
        log.info("the pods of %s are not deleted yet: %s", row, error)
        return row.ended_at is not None and now > row.ended_at + REMOVING


def _cluster(row: ClusterCheck) -> Probes:
    """Raises InvalidInput where its cluster is not configured any more."""
    clusters.backend(row.cluster)
    cluster = clusters.get(row.cluster)
    if not isinstance(cluster, Probes):
        raise ValueError(f"cluster {row.cluster} cannot be looked at by pods")
    return cluster
