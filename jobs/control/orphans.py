"""Find and end attempts that are alive although their job is done with them.

This happens when a cluster is restored to an older state. No lease is needed: a stray attempt stays one for ever,
because a later attempt was begun or the job left the cluster, and no phase leads back into an attempt.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils import timezone

from common import faultpoints
from common.errors import ClusterError
from jobs import clusters
from jobs.core.attempt_ref import AttemptRef
from jobs.core.lifecycle import ON_CLUSTER, Phase
from jobs.models import Job, RemovedJob
from queues import namespaces

from . import attempt_rows, replica_status

log = logging.getLogger(__name__)

SETTLED = timedelta(seconds=10)  # an attempt that ended just now may still be in a cluster's cached view
MOST = 50  # per turn; the rest is handled in the next one


def is_stray(attempt: int, *, current: int, phase: str) -> bool:
    """`current` is the job's own attempt. A later attempt is unknown to this database, and left alone."""
    return attempt < current or (attempt == current and Phase(phase) not in ON_CLUSTER)


def sweep_all() -> int:
    """Sweep every cluster, in its own namespace and in those of attempts that last in another one.

    What does not answer is skipped until the next turn.
    """
    count = 0
    for alias in clusters.names():
        for namespace in _namespaces(alias):
            try:
                count += sweep(alias, now=timezone.now(), namespace=namespace)
            except (ClusterError, OSError) as error:
                where = f", namespace {namespace}" if namespace else ""
                log.info("cluster %s%s: not swept: %s", alias, where, error)
    return count


def _namespaces(alias: str) -> list[str]:
    own = clusters.namespace_of(alias)
    theirs = {one.namespace for one in namespaces.bound(alias)}
    return ["", *sorted((attempt_rows.namespaces(alias) | theirs) - {own})]


def sweep(alias: str, *, now: datetime, namespace: str = "") -> int:
    """End the stray attempts of one namespace of a cluster; empty: of its own. Return how many there were."""
    cluster = clusters.get(alias)
    found = _strays(cluster.open_attempts(namespace), now)[:MOST]
    for job, ref in found:
        log.info("job %s: attempt %s lives again in cluster %s; it is ended", job.pk, ref.number, alias)
        grace = job.job_spec.grace_seconds if isinstance(job, Job) else 0  # of a removed one nobody reads what it saves
        with faultpoints.around("strays.delete"):
            cluster.delete(ref, grace)
    return len(found)


def _strays(there: Iterable[AttemptRef], now: datetime) -> list[tuple[Job | RemovedJob, AttemptRef]]:
    """Runs without a job row are ignored: another installation may use the same cluster."""
    there = list(there)
    ids = {replica_status.job_of(ref.run) for ref in there}
    rows = [*Job.objects.filter(pk__in=ids, phase_since__lt=now - SETTLED), *RemovedJob.objects.filter(pk__in=ids)]
    jobs = {job.run: job for job in rows}
    return [
        (jobs[ref.run], ref)
        for ref in there
        if ref.run in jobs and is_stray(ref.number, current=jobs[ref.run].attempt, phase=jobs[ref.run].phase)
    ]
