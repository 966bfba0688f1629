"""Remove finished jobs whose `ttl_seconds` is over: first most of their output, then the job itself, then their files.

A folder in a claim of a cluster is noted with the removal, and deleted by a keeper (control/keeping.py).

The deletion of the job is one transaction, with the row that remains of it and the entry of the audit. What a death
leaves undone the next turn finds: jobs that are still due, and removed ones whose files are not deleted yet.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import DateTimeField, Exists, ExpressionWrapper, F, Min, OuterRef, QuerySet, Sum, Value

from accounts import audit
from common import faultpoints
from common.files import file_deletion
from common.machine import trees
from common.signals import doorbell
from jobs import clusters
from jobs.clusters import Keeps
from jobs.models import Attempt, Delivery, Job, LogSegment, MetricChunk, MetricRollup, RemovedJob
from volumes import keeping
from volumes.models import LeftFolder

from . import retention, usage

log = logging.getLogger(__name__)

MOST_JOBS = 100  # per turn; the rest is removed in the next ones
MOST_BATCHES = 200  # of rows, per turn, over all jobs
BATCH = 5000
_MANY = (LogSegment, MetricChunk, MetricRollup)  # tables in which a job may have millions of rows


def remove_due(*, now: datetime) -> int:
    """Remove the jobs that are due, a bounded number. Return how many.

    May run concurrently, and be killed at any point. During a backup nothing is removed: the next turn does it.
    """
    with file_deletion.allowed() as is_allowed:
        if not is_allowed:
            return 0
        for left in RemovedJob.objects.filter(files_deleted_at=None).order_by("-id")[:MOST_JOBS]:  # by a turn that died
            _delete_files(left, now)
        count, batches = 0, MOST_BATCHES
        for job in due(now).order_by("finished_at", "id")[:MOST_JOBS]:
            batches -= _delete_output(job, now, most=batches)
            if batches <= 0:
                break
            if removed := _remove(job, now):
                _delete_files(removed, now)
                count += 1
    if count:
        log.info("%s jobs were removed after their time", count)
        usage.forget()
    return count


def due(now: datetime) -> QuerySet[Job]:
    """Return jobs whose time after their end is over, of whose agents nothing can come, and whose webhooks know of it."""
    end = ExpressionWrapper(
        F("finished_at") + F("ttl_seconds") * Value(timedelta(seconds=1)), output_field=DateTimeField()
    )
    drained = now - timedelta(seconds=settings.MUSTER_AGENT_DRAIN_SECONDS)
    waiting = Delivery.objects.filter(job=OuterRef("pk"), next_try_at__isnull=False)
    finished = Job.objects.filter(ttl_seconds__isnull=False, finished_at__lte=drained)
    return finished.alias(removal_due=end).filter(~Exists(waiting), removal_due__lte=now)


def _delete_output(job: Job, now: datetime, *, most: int) -> int:
    """Delete rows of its output in batches, at most so many of them. Return how many there were."""
    with faultpoints.around("removing.rows"):  # its log reads as deleted from here on
        Job.objects.filter(pk=job.pk, logs_collected_at=None).update(logs_collected_at=now, log_bytes=0)
    count = 0
    for model in _MANY:
        rows: QuerySet[Any, Any] = model._default_manager.filter(job=job)
        while count < most:
            with faultpoints.around("removing.rows"):
                deleted, _ = model._default_manager.filter(pk__in=rows.values_list("pk", flat=True)[:BATCH]).delete()
            if not deleted:
                break
            count += 1
    return count


def _remove(job: Job, now: datetime) -> RemovedJob | None:
    """Delete the job with all that belongs to it. Return what remains; None if it is not due any more."""
    with faultpoints.atomic("removing.job"):
        locked = due(now).select_for_update(skip_locked=True, of=("self",)).select_related("team")
        row = locked.filter(pk=job.pk).first()
        # A delivery that an administrator repeats in this moment is waited for, and then counts.
        deliveries = Delivery.objects.select_for_update().filter(job=job.pk)
        if row is None or any(one.next_try_at for one in deliveries.only("next_try_at")):
            return None
        removed = _remains(row, now)
        removed.save(force_insert=True)
        before = {"phase": row.phase, "finished_at": row.finished_at, "ttl_seconds": row.ttl_seconds}
        audit.record(audit.AuditAction.JOB_REMOVED, by=None, on=row, team=row.team, before=before)
        doorbell.hint(job=row.pk, team=row.team_id, what="state")
        keeping.note_left(_left_folders(row, now))
        row.delete()
    return removed


def _remains(job: Job, now: datetime) -> RemovedJob:
    attempts = Attempt.objects.filter(job=job).order_by()
    found = attempts.aggregate(held=Sum(F("ended_at") - F("launched_at")), started=Min("running_at"))
    same = ("uid", "team_id", "queue_id", "user_id", "name", "phase", "slots", "attempt", "created_at", "finished_at")
    return RemovedJob(
        id=job.pk,
        **{name: getattr(job, name) for name in same},
        idempotency_key=job.idempotency_key,
        framework=job.spec["framework"],
        held_seconds=round(found["held"].total_seconds()) if found["held"] else 0,
        started_at=found["started"] or job.running_at,
        removed_at=now,
    )


def _left_folders(job: Job, now: datetime) -> list[LeftFolder]:
    """Return the folders that its attempts had in claims, which only a pod can delete (control/keeping.py)."""
    found = list[LeftFolder]()
    for alias, namespace in Attempt.objects.filter(job=job).order_by().values_list("cluster", "namespace").distinct():
        cluster = clusters.get(alias) if clusters.is_known(alias) else None
        where = cluster.job_folders() if isinstance(cluster, Keeps) else None
        if where is not None:
            namespace = namespace or clusters.namespace_of(alias)
            place = {"cluster": alias, "namespace": namespace, "claim": where.claim, "path": where.path}
            found.append(LeftFolder(job=job.pk, run=job.run, removed_at=now, **place))
    return found


def _delete_files(removed: RemovedJob, now: datetime) -> None:
    """Delete the files of its log, and its folder in a local cluster."""
    retention.delete_files(removed)
    for root in retention.local_roots():
        folder = root / "jobs" / removed.run
        if folder.is_dir() and not folder.is_symlink():
            with faultpoints.around("removing.folder"):
                trees.remove(folder)
        if folder.is_dir():
            log.warning("folder %s of removed job %s cannot be deleted; it is tried again", folder, removed.pk)
            return
    with faultpoints.around("removing.mark"):
        RemovedJob.objects.filter(pk=removed.pk).update(files_deleted_at=now)
