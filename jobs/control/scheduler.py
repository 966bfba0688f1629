"""Load a snapshot of one queue, let `queues.admission` decide, record. The only writer of QUEUED to ADMITTED."""

from django.db.models import Sum
from django.utils import timezone

from common import doorbell, faultpoints
from jobs.core.lifecycle import Phase
from jobs.models import Job, JobEvent
from queues import admission
from queues.models import Queue

# Waiting jobs considered at once per queue; jobs behind them could not start anyway while these wait.
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
        queue = Queue.objects.select_for_update(no_key=True).get(pk=queue_id)
        waiting = _waiting(queue)
        decisions = admission.decide([_state(queue)], [_pending(job, queue) for job in waiting])
        by_id = {job.pk: job for job in waiting}
        return sum(_record(by_id[decision.job], decision) for decision in decisions)


def snapshot(queue: Queue) -> tuple[admission.QueueState, list[admission.Pending]]:
    """Return what admission would be given now. Not locked: only `schedule_queue` may act on it."""
    return _state(queue), [_pending(job, queue) for job in _waiting(queue)]


def _waiting(queue: Queue) -> list[Job]:
    return list(Job.objects.waiting().filter(queue=queue).order_by("-priority", "created_at", "id")[:HORIZON])


def _state(queue: Queue) -> admission.QueueState:
    used = Job.objects.holding_quota().filter(queue=queue).aggregate(total=Sum("slots"))["total"] or 0
    return admission.QueueState(queue.name, queue.quota, {queue.resource: used}, queue.is_open)


def _pending(job: Job, queue: Queue) -> admission.Pending:
    return admission.Pending(job.pk, queue.name, {queue.resource: job.slots}, job.priority, job.created_at.timestamp())


def _record(job: Job, decision: admission.Decision) -> bool:
    match decision:
        case admission.Wait(reason=reason):
            if job.wait_reason != reason:
                Job.objects.filter(pk=job.pk).update(wait_reason=reason)
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
