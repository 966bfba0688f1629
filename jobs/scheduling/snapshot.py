"""Read the snapshot that admission decides on: queues, the jobs that hold their quota and those that wait for it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from django.db.models import Q, Sum
from django.utils import timezone

from jobs import clusters
from jobs.core.lifecycle import ON_CLUSTER
from jobs.core.verdict import RoleView
from jobs.models import Job
from jobs.models.attempt import newest_namespace
from queues import admission, namespaces
from queues.admission import Code, Holding, Node, Policy
from queues.models import Queue
from queues.trees import Sharing

from . import holding, hours, reach


@dataclass(frozen=True)
class Snapshot:
    queues: list[admission.QueueState]
    pending: list[admission.Pending]
    nodes: tuple[Node, ...]


def exclusive_names(roles: Iterable[RoleView], queue: Queue) -> frozenset[str]:
    """Return the names that no other running job of the same namespace may have beside a job of these roles."""
    names = frozenset(role.exclusive for role in roles if role.exclusive)
    return names if names and clusters.backend(queue.cluster).FINDS_BY_NAME else frozenset()


def snapshot(
    shared: Sharing,
    jobs: list[Job],
    *,
    lock: Callable[[str], None] | None = None,
    held: Mapping[int, tuple[Holding, ...]] | None = None,
    used: Mapping[int, int] | None = None,
) -> Snapshot:
    """Return what admission is given with these jobs waiting.

    `lock` is called with what all queues of a cluster share, before that is read; without it nobody may act on the result.
    `held` and `used`: the jobs that hold quota and their slots, by their queues' ids, where the caller has read them.
    """
    by_id = {queue.pk: queue for queue in shared.queues}
    names = {job.pk: exclusive_names(job.role_views, by_id[job.queue_id]) for job in jobs}
    wanted = frozenset[str]().union(*names.values())
    cluster = shared.queues[0].cluster  # of one flavor
    if wanted and lock is not None:
        lock(f"names of cluster {cluster}")  # in all its namespaces: few jobs have such names
    if used is None:
        used = reach.held(shared.queues)
    machine, now = _machine(cluster, lock), timezone.now()
    if held is None:
        held = holding.by_queue(shared) if looks_at_holders(shared) else {}
    states = []
    for queue in shared.queues:
        ours = [job for job in jobs if job.queue_id == queue.pk and names[job.pk]]
        taken = _taken(queue, ours, frozenset[str]().union(*(names[job.pk] for job in ours))) if ours else {}
        spent = hours.spent_until(queue, now)
        state = admission.QueueState(
            queue.name, queue.quota, {queue.resource: used.get(queue.pk, 0)}, queue.is_open, taken, machine,
            Policy(queue.policy), held.get(queue.pk, ()), queue.preempts, queue.slots_per_user,
            reach.held_by_users(queue) if queue.slots_per_user is not None else {}, spent.timestamp() if spent else None,
        )  # fmt: skip
        states.append(state)
    looks_ahead = looks_at_holders(shared)
    pending = [
        admission.Pending(
            job.pk or 0, by_id[job.queue_id].name, {by_id[job.queue_id].resource: job.slots}, job.priority,
            job.created_at.timestamp(), names[job.pk], longest=holding.longest(job) if looks_ahead else None,
            is_claiming=job.wait_code == Code.PREEMPTING, user=job.user_id,
        )
        for job in jobs
    ]  # fmt: skip
    return Snapshot(states, pending, shared.nodes)


def looks_at_holders(shared: Sharing) -> bool:
    """Whether a decision depends on who holds the quota, and until when."""
    return bool(shared.nodes) or any(one.preempts or one.policy == Policy.BACKFILL for one in shared.queues)


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
