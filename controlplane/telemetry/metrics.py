"""What Prometheus gets of the database's rows and of this process's views of clusters, read when it asks.

Every web process reports the same rows, so take the maximum over them, not the sum.
"""

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta

from django.conf import settings
from django.core.signals import got_request_exception
from django.db import DatabaseError, InterfaceError, connection
from django.db.models import Count, Min, Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily as Gauges

from common.http.error_responses import is_program
from common.http.middleware import Middleware
from common.signals.hints import open_streams
from common.telemetry import measures
from jobs import clusters
from jobs.core.lifecycle import HOLDS_QUOTA, Phase
from jobs.models import AttemptFailure, Job, Replica
from queues.models import Queue

from . import health

log = logging.getLogger(__name__)
FAILURES_OF = timedelta(hours=1)
OF_QUEUE = ["team", "queue"]

_status: ContextVar[int] = ContextVar("status", default=500)


class Timed(Middleware):
    """Time each request by its route; what matches none is one series together."""

    @contextmanager
    def around(self, request: HttpRequest) -> Iterator[None]:
        began, before = time.perf_counter(), _status.set(500)
        try:
            yield
        finally:
            match = request.resolver_match
            route = match.view_name if match else "none"
            labels = request.method or "", route, f"{_status.get() // 100}xx"
            measures.requests.labels(*labels).observe(time.perf_counter() - began)
            _status.reset(before)

    def after(self, response: HttpResponse) -> HttpResponse:
        _status.set(response.status_code)
        return response


def _count_error(request: HttpRequest | None = None, **_: object) -> None:
    """Count an error that no view handled; Django sends this signal while it handles the exception."""
    error = sys.exception()
    if request is not None and error is not None:
        measures.failed("api" if is_program(request) else "page", error)


got_request_exception.connect(_count_error)


def serve(*, rows: bool = False) -> None:
    """Serve this process's metrics; `rows`: also what the database holds. Does nothing without MUSTER_METRICS."""
    measures.streams.set_function(lambda: sum(open_streams.values()))
    measures.serve(settings.MUSTER_METRICS, WatchMetrics(), *([RowMetrics()] if rows else []))


class WatchMetrics:
    """How old this process's views of the clusters are."""

    def collect(self) -> Iterator[Gauges]:
        ages = Gauges(
            "muster_watch_age_seconds", "Since the cluster last sent something.", labels=["cluster", "resource"]
        )
        for alias, adapter in clusters.adapters.made().items():
            for resource, age in getattr(adapter, "watch_ages", dict)().items():
                ages.add_metric([alias, resource], age)
        yield ages


class RowMetrics:
    """Jobs, queues, replicas and failures as the database has them."""

    def collect(self) -> Iterator[Gauges]:
        up = Gauges("muster_database_up", "1 if Postgres answered.")
        found: list[Gauges] = []
        try:
            # Prometheus gives up after ten seconds, and would learn nothing; a connection of the pool is waited for longer.
            if health.database_answers():
                found = [one for read in (_queues, _replicas, _failures) for one in read(timezone.now())]
        except (DatabaseError, InterfaceError) as error:
            log.warning("metrics without rows: %s", error)
        finally:
            if not connection.in_atomic_block:
                connection.close()  # back to the pool: the thread that asks is not Django's
        up.add_metric([], 1.0 if found else 0.0)
        yield from (up, *found)


def _queues(now: datetime) -> list[Gauges]:
    """Read jobs that have not ended, and only those: ended ones are many."""
    jobs = Gauges("muster_jobs", "Jobs that have not ended, by phase.", labels=["phase", *OF_QUEUE])
    oldest = Gauges(
        "muster_queue_oldest_wait_seconds", "How long the job waits that has waited longest.", labels=OF_QUEUE
    )
    quota = Gauges("muster_queue_slots", "Processes that may hold a slot at once.", labels=OF_QUEUE)
    used = Gauges("muster_queue_slots_used", "Processes that hold a slot.", labels=OF_QUEUE)
    wanted = Gauges("muster_queue_slots_wanted", "Processes of jobs that wait.", labels=OF_QUEUE)
    holds, waits = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    rows = Job.objects.active().order_by().values_list("phase", "queue__team__name", "queue__name")
    for phase, team, queue, count, slots, since in rows.annotate(Count("pk"), Sum("slots"), Min("phase_since")):
        jobs.add_metric([phase, team, queue], count)
        if phase in HOLDS_QUOTA:
            holds[team, queue] += slots
        if phase == Phase.QUEUED:
            waits[team, queue] += slots
            oldest.add_metric([team, queue], max(0.0, (now - since).total_seconds()))
    for team, queue, nominal in Queue.objects.order_by().values_list("team__name", "name", "nominal"):
        for family, value in ((quota, nominal), (used, holds[team, queue]), (wanted, waits[team, queue])):
            family.add_metric([team, queue], value)
    return [jobs, oldest, quota, used, wanted]


def _replicas(now: datetime) -> list[Gauges]:
    silent = Gauges("muster_silent_replicas", "Running replicas whose agents send nothing.", labels=OF_QUEUE)
    rows = Replica.objects.filter(Replica.is_silent(now), job__finished_at=None).order_by()
    for team, queue, count in rows.values_list("job__queue__team__name", "job__queue__name").annotate(n=Count("pk")):
        silent.add_metric([team, queue], count)
    return [silent]


def _failures(now: datetime) -> list[Gauges]:
    failed = Gauges(
        "muster_failed_attempts", "Attempts judged as failed in the last hour, by kind.", labels=["kind", *OF_QUEUE]
    )
    rows = AttemptFailure.objects.filter(judged_at__gte=now - FAILURES_OF).order_by()
    found = rows.values_list("kind", "job__queue__team__name", "job__queue__name").annotate(n=Count("pk"))
    for kind, team, queue, count in found:
        failed.add_metric([kind, team, queue], count)
    return [failed]
