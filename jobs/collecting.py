"""What is old enough goes: logs of jobs that ended long ago, and the folders of local jobs."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.core.files.storage import storages
from django.utils import timezone

from . import log_store
from .models import Job, LogSegment
from .packing import UNREAD_FOR, sweep

MOST_JOBS = 500  # in one turn; tomorrow is another
PRESENT = timedelta(days=2)  # attempts whose folders are looked at for files that no row names


@dataclass
class Collected:
    """What was deleted, or would be. Names for people."""

    logs: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def collect(*, now: datetime, is_dry: bool = False) -> Collected:
    """May run twice, and be killed anywhere: the rows go first, then the files, then the mark that all is gone."""
    found = Collected()
    for job in _with_old_logs(now):
        found.logs.append(f"{job.run} {job.name}")
        if not is_dry:
            _collect_log(job)
    for folder in _old_folders(now):
        found.folders.append(str(folder))
        if not is_dry:
            shutil.rmtree(folder, ignore_errors=True)
    if not is_dry:
        for job in Job.objects.filter(finished_at__lt=now - UNREAD_FOR, finished_at__gt=now - PRESENT):
            for attempt in range(1, job.attempt + 1):
                found.files += sweep(run=job.run, attempt=attempt, now=now)
    return found


def _with_old_logs(now: datetime) -> Iterator[Job]:
    over = now - timedelta(days=settings.MUSTER_LOG_DAYS)
    yield from Job.objects.filter(finished_at__lt=over, logs_collected_at=None).order_by("pk")[:MOST_JOBS]


def _collect_log(job: Job) -> None:
    LogSegment.objects.filter(job=job).delete()
    for attempt in range(1, job.attempt + 1):
        where = log_store.folder(job.run, attempt)
        try:
            _, names = storages["logs"].listdir(where)
        except FileNotFoundError:
            continue
        for name in names:
            log_store.discard(f"{where}/{name}")
        log_store.discard(where)  # a folder that is empty now
    Job.objects.filter(pk=job.pk).update(logs_collected_at=timezone.now())


def _old_folders(now: datetime) -> Iterator[Path]:
    """Of local clusters: a folder is named after its job's run. One that belongs to no job here is left alone."""
    over = now - timedelta(days=settings.MUSTER_JOB_DAYS)
    for root in _roots():
        folders = {path.name: path for path in root.glob("jobs/*-*") if path.is_dir() and not path.is_symlink()}
        numbers = [int(name.partition("-")[0]) for name in folders if name.partition("-")[0].isdecimal()]
        for job in Job.objects.filter(pk__in=numbers, finished_at__lt=over).only("pk", "uid"):
            if job.run in folders:
                yield folders[job.run]


def _roots() -> list[Path]:
    options = [entry.get("OPTIONS", {}) for entry in settings.CLUSTERS.values()]
    return [Path(one["ROOT"]) for one in options if one.get("ROOT")]
