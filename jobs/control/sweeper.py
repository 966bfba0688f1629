"""The safety net: visit overdue jobs from a thread of the tasks process, without Redis or Celery.

Doorbells go through Redis, and any of them may be lost. While it is down, or Celery's consumer has not reconnected, this
thread keeps jobs moving, only a little slower. It looks for jobs that were due and not visited.
"""

import itertools
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections
from django.utils import timezone

from common.telemetry import measures, traces
from jobs import clusters
from jobs.models import Job, Replica
from jobs.scheduling import scheduler

from . import container_logs, judgement
from .reconciler import visit
from .store import DjangoStore

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
LATE = timedelta(seconds=0.5)  # a working doorbell is quicker than this
UNJUDGED = timedelta(seconds=3)  # reports of agents that no visit has read for so long
REPORTS_EVERY = 2  # rounds: such reports are rare, and each query costs an idle server a twentieth of its CPU
SCHEDULE_SECONDS = 4.0
MOST = 50  # jobs per round; the rest is overdue in the next one too, which follows at once
PAUSE_SECONDS = 0.05  # before it


@dataclass
class LastRun:
    """When this process last scheduled, on the monotonic clock."""

    scheduled_at: float = 0.0


last_run = LastRun()


def visit_job(job: int, *, is_overdue: bool = False) -> timedelta | None:
    """Visit one job, with this thread as the lease owner. `is_overdue`: no doorbell asked for this visit."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
    began, outcome, store = time.perf_counter(), "failed", DjangoStore()
    try:
        with traces.span("visit", job=job):
            after = visit(
                job,
                store=store,
                clusters=clusters.get,
                clock=timezone.now,
                owner=owner,
                backfill_logs=container_logs.backfill,
                judge=judgement.judge,
            )
        outcome = "done"
        return after
    except Exception as error:
        measures.failed("visit", error)
        raise
    finally:
        measures.visits.labels(outcome).observe(time.perf_counter() - began)
        if is_overdue and store.has_stepped:  # running jobs are visited every few seconds for nothing: no ring is lost
            measures.overdue.inc()


def schedule() -> None:
    last_run.scheduled_at = time.monotonic()
    scheduler.schedule()


def sweep(now: datetime, *, has_reports: bool = True) -> int:
    """Visit overdue jobs, and schedule if that did not happen lately. Return the number of overdue jobs.

    `has_reports`: also look for reports that no visit has read.
    """
    _keep_scheduling()
    overdue = Job.objects.due(now - LATE).order_by("next_reconcile_at").values_list("pk", flat=True)
    jobs = list(overdue[:MOST])
    # A finished job is never due, and the process that wrote a late report may have died before it woke the job.
    if has_reports:
        unjudged = Replica.objects.filter(unjudged_at__lt=now - UNJUDGED)
        jobs += unjudged.order_by().values_list("job", flat=True).distinct()[: MOST - len(jobs)]
    for job in jobs:
        _visit_safely(job)
        _keep_scheduling()  # one slow cluster must not keep all queues waiting
    return len(jobs)


def start() -> None:
    threading.Thread(target=_run, daemon=True, name="sweeper").start()


def _keep_scheduling() -> None:
    if time.monotonic() - last_run.scheduled_at > SCHEDULE_SECONDS:
        schedule()


def _visit_safely(job: int) -> None:
    """Visit one job; a failing visit must not keep the others from theirs."""
    try:
        visit_job(job, is_overdue=True)
    except Exception:
        log.exception("job %s: its visit failed", job)


def _run() -> None:
    overdue = 0
    for round_ in itertools.count():
        time.sleep(EVERY_SECONDS if overdue < MOST else PAUSE_SECONDS)
        overdue = 0
        try:
            overdue = sweep(timezone.now(), has_reports=round_ % REPORTS_EVERY == 0)
        except Exception as error:  # outermost handler of this thread; Postgres may be down
            log.warning("not swept: %s", error)
            connections.close_all()  # kept otherwise: a new connection each second costs more than the query
