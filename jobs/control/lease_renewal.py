"""Renew the leases of running visits, so that leases can be short.

A process that dies or is stopped renews nothing: its jobs become free after LEASE_SECONDS, and the fencing token
refuses its late writes. The thread sleeps without a timeout while no visit is running.
"""

import logging
import os
import threading
import time
from datetime import timedelta

from django.db import connections
from django.db.models import Case, DateTimeField, F, Value, When
from django.utils import timezone

from common import faultpoints
from jobs.core.lease import LEASE_SECONDS
from jobs.models import Job

log = logging.getLogger(__name__)

EVERY_SECONDS = LEASE_SECONDS / 4
LONGEST_SECONDS = 120.0  # a visit is bounded (`reconciler.VISIT_SECONDS`); a hanging one loses its lease after this

_held: dict[tuple[int, int], float] = {}  # (job, token) -> when it was taken, on the monotonic clock
_changed = threading.Condition()
_pid = 0


def hold(job: int, token: int) -> None:
    global _pid
    with _changed:
        if _pid != os.getpid():  # threads do not survive a fork
            _held.clear()
            _pid = os.getpid()
            threading.Thread(target=_run, daemon=True, name="renewal").start()
        _held[job, token] = time.monotonic()
        _changed.notify()


def drop(job: int, token: int) -> None:
    with _changed:
        _held.pop((job, token), None)


def renew(job: int, token: int) -> bool:
    """Renew one lease if we still hold it. Moves the due time along, unless another process poked the job meanwhile."""
    until = timezone.now() + timedelta(seconds=LEASE_SECONDS)
    due = Case(
        When(next_reconcile_at=F("lease_expires_at"), then=Value(until)),
        default=F("next_reconcile_at"),
        output_field=DateTimeField(),
    )
    ours = Job.objects.filter(pk=job, lease_token=token, lease_expires_at__isnull=False)
    with faultpoints.around("store.renew"):
        return bool(ours.update(lease_expires_at=until, next_reconcile_at=due))


def _run() -> None:
    while True:
        with _changed:
            while not _held:
                _changed.wait()
        time.sleep(EVERY_SECONDS)
        _renew_old(time.monotonic())


def _renew_old(now: float) -> None:
    with _changed:
        old = [(key, since) for key, since in _held.items() if now - since >= EVERY_SECONDS]
    try:
        for key, since in old:
            if now - since > LONGEST_SECONDS or not renew(*key):
                drop(*key)
    except Exception as error:  # outermost handler of this thread; Postgres may be down
        log.warning("leases not renewed: %s", error)
    finally:
        if old:
            connections.close_all()
