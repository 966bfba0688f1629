"""Read the snapshot that admission decides on: a queue, the jobs that hold its quota and those that wait for it."""

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_

from django.db.models import Q, Sum
from django.utils import timezone

from jobs import clusters
from jobs.core.lifecycle import ON_CLUSTER
from jobs.core.verdict import RoleView
from jobs.models import Job, in_order
from jobs.models.attempt import newest_namespace
from queues import admission, namespaces
from queues.admission import Holding, Policy
from queues.models import Queue

from . import holding

# Waiting jobs considered at once per queue; jobs behind them could not start anyway while these wait. As many that are
# larger than the quota, which hold up nobody, get their reason beside them.
HORIZON = 200


def exclusive_names(roles: Iterable[RoleView], queue: Queue) -> frozenset[str]:
    """Return the names that no other running job of the same namespace may have beside a job of these roles."""
    names = frozenset(role.exclusive for role in roles if role.exclusive)
    return names if names and clusters.backend(queue.cluster).FINDS_BY_NAME else frozenset()


def snapshot(
    queue: Queue,
    jobs: list[Job],
    *,
    lock: Callable[[str], None] | None = None,
    held: tuple[Holding, ...] | None = None,
) -> tuple[admission.QueueState, list[admission.Pending]]:
    """Return what admission is given with these jobs waiting.

    `lock` is called with what all queues of a cluster share, before that is read; without it nobody may act on the result.
    `held`: the jobs that hold quota, where the caller has read them.
    """
    names = {job.pk: exclusive_names(job.role_views, queue) for job in jobs}
    wanted = frozenset[str]().union(*names.values())
    if wanted and lock is not None:
        lock(f"names of cluster {queue.cluster}")  # in all its namespaces: few jobs have such names
    used = Job.objects.holding_quota().filter(queue=queue).aggregate(total=Sum("slots"))["total"] or 0
    taken = _taken(queue, [job for job in jobs if names[job.pk]], wanted) if wanted else {}
    machine = _machine(queue.cluster, lock)
    policy = Policy(queue.policy)
    looks_ahead = policy is Policy.BACKFILL
    if held is None:
        held = holding.holding(Job.objects.holding_quota().filter(queue=queue), queue) if looks_ahead else ()
    state = admission.QueueState(
        queue.name, queue.quota, {queue.resource: used}, queue.is_open, taken, machine, policy, held
    )  # fmt: skip
    pending = [
        admission.Pending(
            job.pk or 0, queue.name, {queue.resource: job.slots}, job.priority, job.created_at.timestamp(), names[job.pk],
            longest=holding.longest(job) if looks_ahead else None,
        )
        for job in jobs
    ]  # fmt: skip
    return state, pending


def waiting(queue: Queue) -> list[Job]:
    """Return the queue's waiting jobs that are considered, in order."""
    everybody = in_order(Job.objects.waiting().filter(queue=queue))
    halves = (everybody.filter(slots__lte=queue.nominal), everybody.filter(slots__gt=queue.nominal))
    return [job for half in halves for job in half[:HORIZON]]


def _machine(cluster: str, lock: Callable[[str], None] | None) -> admission.Machine | None:
    """Return what the machine of a local cluster bears, whichever queues its jobs came from."""
    room = clusters.room_of(cluster)
    if room is None:
        return None
    if lock is not None:
        lock(f"room of cluster {cluster}")
    used = Job.objects.holding_quota().filter(queue__cluster=cluster).aggregate(total=Sum("slots"))["total"] or 0
    return admission.Machine(room.slots, used, room.free)


def _taken(queue: Queue, jobs: Iterable[Job], names: Iterable[str]) -> dict[str, int]:
    """Return which of these names a running job has where these jobs would run, whichever queue it came from."""
    has_one = reduce(or_, (Q(roles__contains=[{"exclusive": name}]) for name in names))
    holders = (
        Job.objects.holding_quota().filter(has_one, queue__cluster=queue.cluster).annotate(place=newest_namespace())
    )
    home = clusters.namespace_of(queue.cluster)
    times = [timezone.now(), *(one.created_at for one in jobs)]
    places = {one or home for one in namespaces.of_times(queue.team, queue.cluster, times)}
    return {
        role.exclusive: job.pk
        for job in holders
        if _place_of(job, queue.cluster, home) in places
        for role in job.role_views
        if role.exclusive
    }


def _place_of(job: Job, cluster: str, home: str) -> str:
    """Return the namespace of a job that holds quota: of its attempt, or in which that will be made."""
    known = job.place if job.phase in ON_CLUSTER else ""  # type: ignore[attr-defined]  # annotated by _taken
    return known or namespaces.of(job.team_id, cluster, at=job.created_at) or home
