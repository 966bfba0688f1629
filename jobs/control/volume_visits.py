"""Look at the storage of teams' volumes, and carry out what is asked for: growth and deletion. Repeated by beat."""

import logging
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q

from common.errors import InvalidInput, Refused, Unreachable
from jobs import clusters
from jobs.clusters import Claims
from jobs.core.pod_template import WORKSPACE
from jobs.models import Job
from jobs.submission.storage import claim_of, claim_of_job
from queues import quantities
from volumes import services
from volumes.models import JobStorage, State, Volume

log = logging.getLogger(__name__)
MOST = 200  # claims of jobs that are deleted in one turn
EACH = timedelta(seconds=50)  # a volume is looked at, at most


def visit_all(*, now: datetime) -> int:
    """Visit the volumes whose turn it is. Return how many."""
    due = services.to_visit(older_than=now - EACH)
    for volume in due:
        try:
            _visit(volume, now)
        except (Refused, InvalidInput) as error:
            services.record(volume, state=volume.state, capacity=volume.capacity, message=str(error), now=now)
        except Unreachable as error:
            log.info("volume %s of %s is not looked at: %s", volume.name, volume.team.name, error)
    _visit_job_storage()
    return len(due)


def _visit_job_storage() -> None:
    """Delete the claims of jobs that no longer need them: a workspace with the job's end, checkpoints with its row."""
    theirs = Job.objects.filter(pk=OuterRef("job"))
    needed = Exists(theirs.filter(finished_at=None)) | (~Q(kind=WORKSPACE) & Exists(theirs))
    for row in JobStorage.objects.exclude(needed).select_related("team").order_by("pk")[:MOST]:
        try:
            cluster = clusters.get(row.cluster)
            if not isinstance(cluster, Claims) or cluster.remove_claim(claim_of_job(row)):
                services.forget_job_storage(row)
        except (Refused, Unreachable, InvalidInput) as error:
            log.info("%s is not deleted yet: %s", row, error)


def _visit(volume: Volume, now: datetime) -> None:
    cluster = clusters.get(volume.cluster)
    if not isinstance(cluster, Claims):
        return
    claim = claim_of(volume)
    if volume.removal_asked_at is not None:
        if volume.claim or cluster.remove_claim(claim):  # an adopted claim stays, with its data
            services.forget(volume)
        return
    seen = cluster.see_claim(claim)
    if seen.state == State.BOUND and _is_larger(volume.size, seen.capacity):
        cluster.grow_claim(claim)
    missing = f"there is no claim {claim.name} on cluster {volume.cluster}" if volume.claim and not seen.state else ""
    state = seen.state or (State.LOST if volume.claim or volume.state in (State.BOUND, State.LOST) else State.UNUSED)
    services.record(volume, state=state, capacity=seen.capacity, message=missing or seen.message, now=now)


def _is_larger(size: str, capacity: str) -> bool:
    return bool(size and capacity) and quantities.read(size) > quantities.read(capacity)
