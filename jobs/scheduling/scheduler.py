"""Load a snapshot of one queue, let `queues.admission` decide, record. The only writer of QUEUED to ADMITTED."""

from collections.abc import Iterable

from django.db import connection, transaction
from django.utils import timezone

from common import faultpoints
from common.signals import doorbell
from common.telemetry import measures
from jobs.core.lifecycle import Phase
from jobs.models import Job, JobEvent
from queues import admission
from queues.models import Queue

from . import snapshot


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
        jobs = snapshot.waiting(queue)
        state, pending = snapshot.snapshot(queue, jobs, lock=_lock)
        decisions = admission.decide([state], pending, now=timezone.now().timestamp())
        by_id = {job.pk: job for job in jobs}
        admitted = [by_id[decision.job] for decision in decisions if _record(by_id[decision.job], decision)]
        transaction.on_commit(lambda: _measure(queue, admitted), robust=True)
        return len(admitted)


def _measure(queue: Queue, admitted: Iterable[Job]) -> None:
    for job in admitted:
        seconds = (timezone.now() - job.phase_since).total_seconds()  # as it was read, when it still waited
        measures.waited.labels(queue.team.name, queue.name).observe(seconds)


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
