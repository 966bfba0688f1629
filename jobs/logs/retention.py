"""Delete what is old enough: logs of jobs that ended long ago, and folders of local jobs. Also sums up log sizes."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.core.files.storage import default_storage
from django.db.models import Exists, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts import audit
from accounts.models import User
from accounts.permissions import Act, require
from common import faultpoints
from common.errors import Conflict
from common.files import file_deletion
from common.machine import trees
from common.signals import doorbell
from common.text import format_bytes
from jobs.core.lifecycle import HOLDS_QUOTA
from jobs.models import Job, JobEvent, LogSegment, RemovedJob

from . import storage, usage
from .compaction import UNREAD_FOR, sweep

log = logging.getLogger(__name__)

MOST_JOBS = 500  # per turn; the rest follows the next day
MOST_TURNS = 200  # of settling, per day
PRESENT = timedelta(days=2)  # attempts whose folders are searched for files without a row
RECENT = timedelta(hours=1)  # the same, of the search every few minutes


@dataclass
class Collected:
    """What was deleted, or would be. Names for people."""

    logs: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def collect(*, now: datetime, is_dry: bool = False) -> Collected:
    """Delete old logs, folders and files. May run concurrently, and be killed at any point.

    Rows are deleted first, then files, and then the job is marked. During a backup nothing is: the next turn does it.
    """
    with file_deletion.allowed() as is_allowed:
        if is_allowed or is_dry:
            return _collect(now, is_dry)
    log.info("nothing is collected while a backup is running")
    return Collected()


def _collect(now: datetime, is_dry: bool) -> Collected:
    found = Collected()
    for job in _with_old_logs(now):
        found.logs.append(f"{job.run} {job.name}")
        if not is_dry:
            _collect_log(job)
    for folder in _old_folders(now):
        found.folders.append(str(folder))
        if not is_dry:
            with faultpoints.around("collecting.folder"):
                trees.remove(folder)
    if not is_dry:
        found.files += _sweep_all(_present(now), now=now)
        settle(now=now)
    return found


def sweep_recent(*, now: datetime) -> int:
    """Delete the files that packing replaced, of running and recently finished jobs. Return how many.

    Until then a log takes its space twice, and teams are charged once.
    """
    is_recent = Q(phase__in=HOLDS_QUOTA) | Q(finished_at__gt=now - RECENT)
    packed = LogSegment.objects.filter(job=OuterRef("pk"), is_packed=True)
    with file_deletion.allowed() as is_allowed:
        return len(_sweep_all(Job.objects.filter(is_recent, Exists(packed)), now=now)) if is_allowed else 0


def _sweep_all(jobs: Iterable[Job | RemovedJob], *, now: datetime) -> list[str]:
    attempts = ((job.run, attempt) for job in jobs for attempt in range(1, job.attempt + 1))
    return [path for run, attempt in attempts for path in sweep(run=run, attempt=attempt, now=now)]


def settle(*, now: datetime) -> int:
    """Sum up the log size of finished jobs, after packing. Return how many jobs were summed."""
    count = 0
    for _ in range(MOST_TURNS):
        wanted = Job.objects.filter(log_bytes=None, finished_at__lt=now - UNREAD_FOR).order_by("pk")
        found = list(wanted.values_list("pk", flat=True)[:MOST_JOBS])
        if not found:
            break
        sums = LogSegment.objects.filter(job=OuterRef("pk")).order_by().values("job").annotate(sum=Sum("size_bytes"))
        with faultpoints.around("collecting.mark"):
            Job.objects.filter(pk__in=found, log_bytes=None).update(log_bytes=Coalesce(Subquery(sums.values("sum")), 0))
        count += len(found)
    return count


def _present(now: datetime) -> Iterator[Job | RemovedJob]:
    """Yield jobs that ended, whose log was deleted, or that were removed lately: files without a row may be left."""
    since = now - PRESENT
    is_new = Q(finished_at__gt=since) | Q(logs_collected_at__gt=since)
    yield from Job.objects.filter(is_new, finished_at__lt=now - UNREAD_FOR)
    yield from RemovedJob.objects.filter(removed_at__gt=since)


def delete_log(*, job: Job, by: User | None) -> Job:
    """Delete a finished job's log to free its space; its history, numbers and metrics stay. Idempotent.

    `by` None is the server's own command line. Raises NotAllowed, and Conflict for a job that may still print.
    """
    if by is not None:
        require(by, Act.CONTROL, job.team)
    with faultpoints.atomic("collecting.rows"):
        row = (
            Job.objects.select_for_update(of=("self",), no_key=True)
            .select_related("queue", "team", "user")
            .filter(pk=job.pk)
            .first()
        )
        if row is None:
            raise Conflict(f"job {job.name} has been removed, and its log with it", "phase", job.phase)
        if not row.is_finished:
            raise Conflict(
                f"job {row.name} is {row.phase} and may still print; its log can be deleted once it has ended",
                "phase",
                row.phase,
            )
        if row.logs_collected_at is not None:
            return row
        freed = LogSegment.objects.filter(job=row).aggregate(sum=Sum("size_bytes"))["sum"] or 0
        LogSegment.objects.filter(job=row).delete()
        row.logs_collected_at, row.log_bytes = timezone.now(), 0
        row.save(update_fields=["logs_collected_at", "log_bytes"])
        words = f"its log was deleted by {by.get_username() if by else 'the server'}; {format_bytes(freed)} were freed"
        JobEvent.objects.create(job=row, kind="note", phase=row.phase, attempt=row.attempt, message=words, user=by)
        audit.record(
            audit.AuditAction.JOB_LOG_DELETED, by=by, on=row, team=row.team, before={"bytes": freed}, after={"bytes": 0}
        )  # fmt: skip
        for what in ("state", "logs"):
            doorbell.hint(job=row.pk, team=row.team_id, what=what)
    # If this process dies here, or a backup is running, the daily turn deletes the remaining files: no row refers to them.
    with file_deletion.allowed() as is_allowed:
        if is_allowed:
            delete_files(row)
    usage.forget()
    return row


def _with_old_logs(now: datetime) -> Iterator[Job]:
    over = now - timedelta(days=settings.MUSTER_LOG_DAYS)
    yield from Job.objects.filter(finished_at__lt=over, logs_collected_at=None).order_by("pk")[:MOST_JOBS]


def _collect_log(job: Job) -> None:
    with faultpoints.around("collecting.rows"):
        LogSegment.objects.filter(job=job).delete()
    delete_files(job)
    with faultpoints.around("collecting.mark"):
        Job.objects.filter(pk=job.pk).update(logs_collected_at=timezone.now(), log_bytes=0)
    usage.forget()


def delete_files(job: Job | RemovedJob) -> None:
    """Delete all files of a job's log, to which no row refers any longer."""
    for attempt in range(1, job.attempt + 1):
        where = storage.folder(job.run, attempt)
        try:
            _, names = default_storage.listdir(where)
        except FileNotFoundError:
            continue
        for name in names:
            storage.discard(f"{where}/{name}")
        storage.discard(where)  # a folder that is empty now


def _old_folders(now: datetime) -> Iterator[Path]:
    """Yield job folders of local clusters, named after the job's run. Folders without a job here are left alone."""
    over = now - timedelta(days=settings.MUSTER_JOB_DAYS)
    for root in local_roots():
        folders = {path.name: path for path in root.glob("jobs/*-*") if path.is_dir() and not path.is_symlink()}
        numbers = [int(name.partition("-")[0]) for name in folders if name.partition("-")[0].isdecimal()]
        for job in Job.objects.filter(pk__in=numbers, finished_at__lt=over).only("pk", "uid"):
            if job.run in folders:
                yield folders[job.run]


def local_roots() -> list[Path]:
    """Return the folders of the local clusters of this server."""
    options = [entry.get("OPTIONS", {}) for entry in settings.CLUSTERS.values()]
    return [Path(one["ROOT"]) for one in options if one.get("ROOT")]
