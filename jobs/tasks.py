"""Celery tasks: three lines each, safe to run twice, with ids as arguments.

A lost task costs a moment at most (sweeper.py).
"""

from datetime import timedelta
from typing import Any

from celery import shared_task
from celery.signals import worker_init
from django.utils import timezone

from common import doorbell, gc_tuning
from jobs.models import Job

from .control import orphans, sweeper
from .logs import compaction, retention

SWEEP = 200  # due jobs that one tick wakes


@worker_init.connect
def _sweep(**_: Any) -> None:
    """Start the sweeper before Redis is used: it is what works without Redis."""
    gc_tuning.settle()
    sweeper.start()


@shared_task(name="jobs.reconcile")
def reconcile(job: int) -> None:
    after = sweeper.visit_job(job)
    if after is not None and after < timedelta(seconds=5):
        doorbell.poke_now("jobs.reconcile", job, after_seconds=after.total_seconds())


@shared_task(name="jobs.schedule")
def schedule() -> None:
    sweeper.schedule()


@shared_task(name="jobs.tick")
def tick() -> None:
    """Wake what is due by its row: the safety net for lost doorbells."""
    sweeper.schedule()
    for job in Job.objects.due(timezone.now()).order_by("next_reconcile_at").values_list("pk", flat=True)[:SWEEP]:
        doorbell.poke("jobs.reconcile", job)


@shared_task(name="jobs.strays")
def end_strays() -> None:
    orphans.sweep_all()


@shared_task(name="jobs.pack_logs")
def pack_logs() -> None:
    compaction.pack_all()


@shared_task(name="jobs.collect")
def collect() -> None:
    retention.collect(now=timezone.now())
