"""The net below the net: visits what is overdue from within the tasks process, without asking Redis or Celery.

Doorbells and beat's tick go through Redis. When it is away, or Celery's consumer has not found back to it, this thread
is why jobs only become a little slower. It looks for jobs that nobody visited though they were due.
"""

import logging
import os
import socket
import threading
import time
from datetime import datetime, timedelta

from django.db import connections
from django.utils import timezone

from jobs import clusters
from jobs.models import Job

from . import container_logs, scheduler
from .reconciler import visit
from .store import DjangoStore

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
LATE = timedelta(seconds=1)  # a doorbell that works is quicker than this
SCHEDULE_SECONDS = 4.0
MOST = 50  # jobs of one round; the rest are late in the next one too

_scheduled_at = 0.0  # on the monotonic clock, by whomever of this process


def visit_job(job: int) -> timedelta | None:
    """One visit in this thread's name."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
    return visit(
        job,
        store=DjangoStore(),
        clusters=clusters.get,
        clock=timezone.now,
        owner=owner,
        backfill_logs=container_logs.backfill,
    )


def schedule() -> None:
    global _scheduled_at
    _scheduled_at = time.monotonic()
    scheduler.schedule()


def sweep(now: datetime) -> int:
    """Visit what is overdue, schedule where nobody did; returns how many jobs that were."""
    if time.monotonic() - _scheduled_at > SCHEDULE_SECONDS:
        schedule()
    overdue = Job.objects.due(now - LATE).order_by("next_reconcile_at").values_list("pk", flat=True)
    jobs = list(overdue[:MOST])
    for job in jobs:
        _visit_safely(job)
    return len(jobs)


def start() -> None:
    threading.Thread(target=_run, daemon=True, name="sweeper").start()


def _visit_safely(job: int) -> None:
    """One job that cannot be visited must not keep the others from it."""
    try:
        visit_job(job)
    except Exception:
        log.exception("job %s: its visit failed", job)


def _run() -> None:
    while True:
        time.sleep(EVERY_SECONDS)
        try:
            sweep(timezone.now())
        except Exception as error:  # the outermost loop of this thread; Postgres may be away
            log.warning("not swept: %s", error)
            connections.close_all()  # kept while all goes well: to take one each second costs more than its question
