"""The last safety net: visit overdue jobs from a thread of the tasks process, without Redis or Celery.

Doorbells and beat's tick go through Redis. While it is down, or Celery's consumer has not reconnected, this thread
keeps jobs moving, only a little slower. It looks for jobs that were due and not visited.
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
LATE = timedelta(seconds=1)  # a working doorbell is quicker than this
SCHEDULE_SECONDS = 4.0
MOST = 50  # jobs per round; the rest is overdue in the next one too

_scheduled_at = 0.0  # last run in this process, on the monotonic clock


def visit_job(job: int) -> timedelta | None:
    """Visit one job, with this thread as the lease owner."""
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
    """Visit overdue jobs, and schedule if that did not happen lately. Return the number of overdue jobs."""
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
    """Visit one job; a failing visit must not keep the others from theirs."""
    try:
        visit_job(job)
    except Exception:
        log.exception("job %s: its visit failed", job)


def _run() -> None:
    while True:
        time.sleep(EVERY_SECONDS)
        try:
            sweep(timezone.now())
        except Exception as error:  # outermost handler of this thread; Postgres may be down
            log.warning("not swept: %s", error)
            connections.close_all()  # kept otherwise: a new connection each second costs more than the query
