"""Celery tasks: three lines each, safe to run twice, with ids as arguments.

A lost task costs a moment at most (sweeper.py).
"""

from datetime import timedelta
from typing import Any

from celery import shared_task
from celery.signals import worker_init
from django.utils import timezone

from common.machine import gc_tuning
from common.signals import doorbell
from credentials.services import forget_old
from queues.models import QueueVersion

from .analysis import rollups
from .control import (
    cluster_checks,
    idle_gpus,
    job_secrets,
    keeping,
    node_rows,
    orphans,
    recent_use,
    sweeper,
    template_check,
    topology,
    volume_visits,
)  # fmt: skip
from .logs import compaction, removal, retention
from .webhooks import courier, sending


@worker_init.connect
def _sweep(**_: Any) -> None:
    """Start what works without Redis before Redis is used."""
    gc_tuning.settle()
    sweeper.start()
    courier.start()


@shared_task(name="jobs.reconcile")
def reconcile(job: int) -> None:
    after = sweeper.visit_job(job)
    if after is not None and after < timedelta(seconds=5):
        doorbell.poke_now("jobs.reconcile", job, after_seconds=after.total_seconds())


@shared_task(name="jobs.check_template")
def check_template(version: int) -> None:
    for found in QueueVersion.objects.filter(pk=version).select_related("queue__team"):
        template_check.check(found)


@shared_task(name="jobs.refresh_volumes")
def refresh_volumes() -> None:
    volume_visits.visit_all(now=timezone.now())


@shared_task(name="jobs.keep")
def keep() -> None:
    keeping.keep_all(now=timezone.now())


@shared_task(name="jobs.check_clusters")
def check_clusters() -> None:
    cluster_checks.go_on(now=timezone.now())


@shared_task(name="jobs.note_topology")
def note_topology() -> None:
    topology.note_all()


@shared_task(name="jobs.note_nodes")
def note_nodes() -> None:
    node_rows.write_all()


@shared_task(name="jobs.note_idle_gpus")
def note_idle_gpus() -> None:
    idle_gpus.note(now=timezone.now())


@shared_task(name="jobs.note_recent_use")
def note_recent_use() -> None:
    recent_use.note(now=timezone.now())


@shared_task(name="jobs.schedule")
def schedule() -> None:
    sweeper.schedule()


@shared_task(name="jobs.tick")
def tick() -> None:
    """Do nothing: the sweeper does it. A beat of version 0.1 sends this every 5 s; to be removed in version 0.3.

    For a task that it does not know, Celery logs an error with a traceback.
    """


@shared_task(name="jobs.strays")
def end_strays() -> None:
    orphans.sweep_all()


@shared_task(name="jobs.pack_logs")
def pack_logs() -> None:
    compaction.pack_all()


@shared_task(name="jobs.roll_up")
def roll_up() -> None:
    rollups.roll_up(now=timezone.now())


@shared_task(name="jobs.sweep_logs")
def sweep_logs() -> None:
    retention.sweep_recent(now=timezone.now())
    removal.remove_due(now=timezone.now())


@shared_task(name="jobs.collect")
def collect() -> None:
    sending.forget(now=timezone.now())
    forget_old(used=job_secrets.in_use())
    retention.collect(now=timezone.now())
    node_rows.forget(now=timezone.now())
