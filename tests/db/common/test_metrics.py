"""What Prometheus is told: of rows by a collector, of requests by a middleware, of ingest where batches are read."""

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone
from prometheus_client import CollectorRegistry

from controlplane.telemetry import metrics
from jobs.models import AttemptFailure, Job, Replica
from queues.models import Queue
from tests.support import seed

pytestmark = pytest.mark.django_db


@pytest.fixture
def told():
    """Read one value; None if there is no such series."""
    registry = CollectorRegistry()
    registry.register(metrics.RowMetrics())
    return registry.get_sample_value


def test_jobs_and_slots_are_told_by_queue(lab, told, team):
    labels = {"team": team.name, "queue": lab.queue.name}
    job = seed.running(lab, nodes=2, per_node=2)
    waiting = lab.submit(nodes=4, nproc_per_node=2)
    Job.objects.filter(pk=waiting.pk).update(phase_since=timezone.now() - timedelta(minutes=5))
    assert told("muster_database_up") == 1
    assert told("muster_jobs", {**labels, "phase": "running"}) == 1
    assert told("muster_jobs", {**labels, "phase": "queued"}) == 1
    assert told("muster_queue_slots", labels) == lab.queue.nominal
    assert told("muster_queue_slots_used", labels) == job.slots
    assert told("muster_queue_slots_wanted", labels) == waiting.slots
    assert 300 <= told("muster_queue_oldest_wait_seconds", labels) < 400


def test_silent_replicas_and_failures_are_counted(lab, told, team):
    labels = {"team": team.name, "queue": lab.queue.name}
    job = seed.running(lab, nodes=2, per_node=2)
    Replica.objects.filter(job=job, index=0).update(
        last_batch_at=timezone.now() - timedelta(minutes=5), state="running"
    )
    assert told("muster_silent_replicas", labels) == 1
    failed = seed.failed(lab)
    kind = AttemptFailure.objects.get(job=failed).kind
    assert told("muster_failed_attempts", {**labels, "kind": kind}) == 1


def test_a_database_that_is_away_is_told_and_does_not_fail_the_answer(monkeypatch, told):
    def away(*_):
        raise OperationalError("gone")

    monkeypatch.setattr(Queue.objects, "order_by", away)
    monkeypatch.setattr(Job.objects, "active", away)
    assert told("muster_database_up") == 0
    assert told("muster_jobs", {}) is None
