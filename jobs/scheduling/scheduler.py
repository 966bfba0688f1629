"""Load a snapshot of one queue, let `queues.admission` decide, record. The only writer of QUEUED to ADMITTED."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from django.db import connection, transaction
from django.db.models import Q, Sum
from django.utils import timezone

from common import faultpoints
from common.signals import doorbell
from common.telemetry import measures
from jobs import clusters
from jobs.core.lifecycle import ON_CLUSTER, Phase
from jobs.core.verdict import RoleView
from jobs.models import Job, JobEvent, in_order
from jobs.models.attempt import newest_namespace
from queues import admission, namespaces
from queues.admission import Policy
from queues.models import Queue

from . import holding

# Waiting jobs considered at once per queue; jobs behind them could not start anyway while these wait. As many that are
# larger than the quota, which hold up nobody, get their reason beside them.
HORIZON = 200


def schedule() -> int:
    """Admit what fits, in every queue with waiting jobs. Returns how many were admitted."""
    names = Job.objects.waiting().order_by().values_list("queue_id", flat=True).distinct()
    return sum(schedule_queue(queue) for queue in list(names))


def schedule_queue(queue_id: int) -> int:
    """Schedule one queue in one transaction.

    A second scheduler waits for the lock on the queue's row, then sees our admissions.
    """
    with faultpoints.atomic("scheduler.queue"):
        queue = Queue.objects.select_related("team").select_for_update(no_key=True, of=("self",)).get(pk=queue_id)
        jobs = waiting(queue)
        state, pending = _snapshot(queue, jobs, is_locked=True)
        decisions = admission.decide([state], pending, now=timezone.now().timestamp())
        by_id = {job.pk: job for job in jobs}
        admitted = [by_id[decision.job] for decision in decisions if _record(by_id[decision.job], decision)]
        transaction.on_commit(lambda: _measure(queue, admitted), robust=True)
        return len(admitted)


def _measure(queue: Queue, admitted: Iterable[Job]) -> None:
    for job in admitted:
        seconds = (timezone.now() - job.phase_since).total_seconds()  # as it was read, when it still waited
        measures.waited.labels(queue.team.name, queue.name).observe(seconds)


def snapshot(
    queue: Queue, jobs: list[Job], *, roles: Iterable[RoleView] = ()
) -> tuple[admission.QueueState, list[admission.Pending]]:
    """Return what admission would be given now with these jobs waiting, also about the names of `roles`.

    Not locked: only `schedule_queue` may act on it.
    """
    return _snapshot(queue, jobs, roles=roles)


def exclusive_names(roles: Iterable[RoleView], queue: Queue) -> frozenset[str]:
    """Return the names that no other running job of the same namespace may have beside a job of these roles."""
    names = frozenset(role.exclusive for role in roles if role.exclusive)
    return names if names and clusters.backend(queue.cluster).FINDS_BY_NAME else frozenset()


def _snapshot(
    queue: Queue, jobs: list[Job], *, roles: Iterable[RoleView] = (), is_locked: bool = False
) -> tuple[admission.QueueState, list[admission.Pending]]:
    names = {job.pk: exclusive_names(job.role_views, queue) for job in jobs}
    wanted = exclusive_names(roles, queue).union(*names.values())
    if wanted and is_locked:
        _lock(f"names of cluster {queue.cluster}")  # in all its namespaces: few jobs have such names
    used = Job.objects.holding_quota().filter(queue=queue).aggregate(total=Sum("slots"))["total"] or 0
    taken = _taken(queue, jobs, wanted) if wanted else {}
    machine = _machine(queue.cluster, is_locked=is_locked)
    policy = Policy(queue.policy)
    looks_ahead = policy is Policy.BACKFILL
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


def _machine(cluster: str, *, is_locked: bool) -> admission.Machine | None:
    """Return what the machine of a local cluster bears, whichever queues its jobs came from."""
    room = clusters.room_of(cluster)
    if room is None:
        return None
    if is_locked:
        _lock(f"room of cluster {cluster}")
    used = Job.objects.holding_quota().filter(queue__cluster=cluster).aggregate(total=Sum("slots"))["total"] or 0
    return admission.Machine(room.slots, used, room.free)


def _taken(queue: Queue, jobs: Iterable[Job], names: Iterable[str]) -> dict[str, int]:
    """Return which of these names a running job has where these jobs would run, whichever queue it came from."""
    has_one = reduce(or_, (Q(roles__contains=[{"exclusive": name}]) for name in names))
    holders = (
        Job.objects.holding_quota().filter(has_one, queue__cluster=queue.cluster).annotate(place=newest_namespace())
    )
    wanted = {
        namespaces.of(queue.team, queue.cluster),
        *(namespaces.of(queue.team, queue.cluster, at=one.created_at) for one in jobs),
    }
    home = clusters.namespace_of(queue.cluster)
    places = {one or home for one in wanted}
    return {
        role.exclusive: job.pk
        for job in holders
        if _place_of(job, home) in places
        for role in job.role_views
        if role.exclusive
    }


def _place_of(job: Job, home: str) -> str:
    """Return the namespace of a job that holds quota: of its attempt, or in which that will be made."""
    known = job.place if job.phase in ON_CLUSTER else ""  # type: ignore[attr-defined]  # annotated by _taken
    return known or namespaces.of(job.team_id, job.queue.cluster, at=job.created_at) or home


def _lock(what: str) -> None:
    """Let one scheduler at a time give out what all queues of a cluster share, until its transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [what])


def _record(job: Job, decision: admission.Decision) -> bool:
    match decision:
        case admission.Wait(why=why, is_head=is_head):
            # What only moved up keeps its row: numbers that change with every admission are read, not stored.
            reason = admission.words(why, is_lasting=not is_head)
            if (job.wait_code, job.wait_reason) != (why.code, reason):
                Job.objects.filter(pk=job.pk).update(wait_code=why.code, wait_reason=reason)
                doorbell.hint(job=job.pk, team=job.team_id, what="state")
            return False
        case admission.Admit():
            return _admit(job)


def _admit(job: Job) -> bool:
    """Admit a job.

    No row is updated if it was cancelled or suspended meanwhile: not an error, and no quota is taken.
    """
    now = timezone.now()
    admitted = (
        Job.objects.waiting()
        .filter(pk=job.pk)
        .update(
            phase=Phase.ADMITTED,
            phase_since=now,
            admitted_at=now,
            wait_code="",
            wait_reason="",
            message="quota reserved",
            next_reconcile_at=now,
        )
    )
    if admitted:
        JobEvent.objects.create(
            job=job, at=now, kind="step", phase=Phase.ADMITTED, attempt=job.attempt, message="quota reserved"
        )
        doorbell.hint(job=job.pk, team=job.team_id, what="state")
        doorbell.poke("jobs.reconcile", job.pk)
    return bool(admitted)
