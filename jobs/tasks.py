"""What Celery runs: three lines each, may run twice, carry ids. Losing one costs at most a safety tick."""

import os
import socket
import threading
from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from controlplane import doorbell

from . import clusters, collecting, packing, scheduler
from .models import Job
from .reconciler import visit
from .store import DjangoStore

SWEEP = 200  # jobs due at once that one tick wakes


@shared_task(name="jobs.reconcile")
def reconcile(job: int) -> None:
    after = visit(job, store=DjangoStore(), clusters=clusters.get, clock=timezone.now, owner=_owner())
    if after is not None and after < timedelta(seconds=5):
        doorbell.poke_now("jobs.reconcile", job, after_seconds=after.total_seconds())


@shared_task(name="jobs.schedule")
def schedule() -> None:
    scheduler.schedule()


@shared_task(name="jobs.tick")
def tick() -> None:
    """The safety net under every doorbell: what is due by its row is woken, whoever forgot to ring."""
    scheduler.schedule()
    for job in Job.objects.due(timezone.now()).order_by("next_reconcile_at").values_list("pk", flat=True)[:SWEEP]:
        doorbell.poke("jobs.reconcile", job)


@shared_task(name="jobs.pack_logs")
def pack_logs() -> None:
    packing.pack_all()


@shared_task(name="jobs.collect")
def collect() -> None:
    collecting.collect(now=timezone.now())


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
