"""Attempts that live though their job is done with them: a cluster that was restored to an older state has them back.

No lease is needed. What makes an attempt a stray stays true for ever: a later one was begun, or the job left the cluster,
and no phase leads back into an attempt.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from common import faultpoints
from common.errors import ClusterError
from jobs import clusters
from jobs.core.lifecycle import ON_CLUSTER, Phase
from jobs.models import Job

from . import replica_status

log = logging.getLogger(__name__)

SETTLED = timedelta(seconds=10)  # what ended just now may still be in a cluster's picture
MOST = 50  # in one turn; the rest is there in the next one


def is_stray(attempt: int, *, current: int, phase: str) -> bool:
    """`current` is the job's own attempt. A later one than that is nobody's we know of, and left alone."""
    return attempt < current or (attempt == current and Phase(phase) not in ON_CLUSTER)


def sweep_all() -> int:
    """Every cluster; one that does not answer is looked at in the next turn."""
    count = 0
    for alias in settings.CLUSTERS:
        try:
            count += sweep(alias, now=timezone.now())
        except (ClusterError, OSError) as error:
            log.info("cluster %s: not swept: %s", alias, error)
    return count


def sweep(alias: str, *, now: datetime) -> int:
    """Ask the strays of one cluster to end. Returns how many there were."""
    cluster = clusters.get(alias)
    found = _strays(cluster.open_attempts(), now)[:MOST]
    for job, attempt in found:
        log.info("job %s: attempt %s lives again in cluster %s; it is ended", job.pk, attempt, alias)
        with faultpoints.around("strays.delete"):
            cluster.delete(job.run, attempt, job.job_spec.grace_seconds)
    return len(found)


def _strays(there: Iterable[tuple[str, int]], now: datetime) -> list[tuple[Job, int]]:
    """A run that no row has is not ours: another installation may use the same cluster."""
    there = list(there)
    ids = {replica_status.job_of(run) for run, _ in there}
    jobs = {job.run: job for job in Job.objects.filter(pk__in=ids, phase_since__lt=now - SETTLED)}
    return [
        (jobs[run], attempt)
        for run, attempt in there
        if run in jobs and is_stray(attempt, current=jobs[run].attempt, phase=jobs[run].phase)
    ]
