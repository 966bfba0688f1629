"""What processes count and time: each series rises by the real thing, and none has a label that could hold a job's id."""

import asyncio
import json
import struct
import threading
import time
from datetime import timedelta
from unittest.mock import Mock

import pytest
from asgiref.testing import ApplicationCommunicator
from django.utils import timezone
from prometheus_client import REGISTRY, CollectorRegistry
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from accounts.access import Access
from accounts.models import Token
from common.errors import InvalidSpec, LeaseLost, MusterError, Refused, Unreachable
from common.signals import doorbell
from common.telemetry import measures
from controlplane.celery import app  # noqa: F401 - its signals count the errors of tasks
from controlplane.telemetry import metrics
from embedded.ports import free_port
from jobs import clusters, tasks
from jobs.api import log_stream
from jobs.control import sweeper
from jobs.control.store import DjangoStore
from jobs.core.attempt_ref import AttemptRef
from jobs.core.lifecycle import Phase
from jobs.ingest.agent_tokens import issue
from jobs.ingest.asgi import PATH, AgentDoor
from jobs.models import Job
from jobs.scheduling.scheduler import schedule
from tests.support import kube_away, seed
from tests.support.builders import identity
from tests.support.patience import PATIENCE_SECONDS, until
from workspaces.services import MissingFiles

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("files")]

# A new name belongs here only if its values are few and known beforehand: each is a series for good.
LABELS = {
    "team", "queue", "phase", "kind", "cluster", "resource", "outcome", "result", "reason", "where", "error",
    "method", "route", "status", "verb",
}  # fmt: skip


JSON = {"content_type": "application/json"}


def samples() -> dict[tuple, float]:
    return {
        (one.name, *sorted(one.labels.items())): one.value for family in REGISTRY.collect() for one in family.samples
    }


@pytest.fixture
def rise():
    """`rise(name, **labels)` returns by how much a sample rose since the test began."""
    before = samples()

    def risen(name: str, **labels: str) -> float:
        key = (name, *sorted(labels.items()))
        return samples().get(key, 0) - before.get(key, 0)

    return risen


@pytest.fixture
def of_queue(lab, team):
    return {"team": team.name, "queue": lab.queue.name}


@pytest.fixture
def job(lab):
    """A job that waits; submitted before `on_memory`, since the memory cluster checks no submission."""
    return lab.submit()


@pytest.fixture
def on_memory(lab, job, monkeypatch):
    """Have visits of this process use the memory cluster."""
    monkeypatch.setattr(sweeper.clusters, "get", lambda alias: lab.cluster)


# -- jobs


def test_an_admission_is_counted_with_how_long_its_job_waited(lab, rise, of_queue):
    job = lab.submit()
    Job.objects.filter(pk=job.pk).update(phase_since=timezone.now() - timedelta(minutes=5))
    assert schedule() == 1
    assert rise("muster_queue_wait_seconds_count", **of_queue) == 1
    assert 300 <= rise("muster_queue_wait_seconds_sum", **of_queue) < 300 + PATIENCE_SECONDS


def test_a_start_is_timed_from_admission(lab, rise, of_queue):
    lab.submit()
    schedule()
    lab.clock.advance(1000)  # it and the admission's are not the same clock
    lab.visit(Job.objects.get(), times=3)
    assert rise("muster_start_seconds_count", **of_queue) == 1
    assert 1000 - PATIENCE_SECONDS < rise("muster_start_seconds_sum", **of_queue) < 1000 + PATIENCE_SECONDS


def test_a_start_after_a_retry_is_timed_from_the_retry(lab, rise, of_queue):
    job = lab.running(max_retries=1)
    first = rise("muster_start_seconds_sum", **of_queue)
    lab.clock.advance(36_000)
    job = lab.visit(lab.finish(job, 1, 1), times=3)
    assert (job.phase, job.attempt) == (Phase.RUNNING, 2)
    assert rise("muster_start_seconds_count", **of_queue) == 2
    assert rise("muster_start_seconds_sum", **of_queue) - first < 60  # seconds of the test's own clock


def test_an_end_is_counted_by_its_phase(lab, rise, of_queue):
    lab.finish(lab.running(), 0, 0)
    lab.finish(lab.running(), 1, 1)
    ends = {phase: rise("muster_jobs_ended_total", **of_queue, phase=phase) for phase in ("succeeded", "failed")}
    assert ends == {"succeeded": 1, "failed": 1}


# -- visits


def test_a_visit_is_timed_by_its_outcome(job, rise, on_memory, monkeypatch):
    sweeper.visit_job(job.pk)
    monkeypatch.setattr(sweeper.clusters, "get", lambda alias: {}[alias])
    with pytest.raises(KeyError):
        sweeper.visit_job(job.pk)
    assert {how: rise("muster_reconcile_seconds_count", outcome=how) for how in ("done", "failed")} == {
        "done": 1, "failed": 1,
    }  # fmt: skip


def test_an_overdue_visit_counts_only_if_it_found_something_to_do(lab, job, rise, on_memory):
    """A running job is due every few seconds without a ring, and that is no lost one."""
    schedule()
    later = timezone.now() + timedelta(minutes=1)
    assert sweeper.sweep(later) == 1
    assert Job.objects.get(pk=job.pk).phase != Phase.ADMITTED
    assert rise("muster_overdue_visits_total") == 1
    lab.visit(job, times=3)
    assert sweeper.sweep(later) == 1
    assert rise("muster_overdue_visits_total") == 1


def test_a_visit_that_was_asked_for_is_not_overdue(job, rise, on_memory):
    schedule()
    sweeper.visit_job(job.pk)
    assert Job.objects.get(pk=job.pk).phase != Phase.ADMITTED
    assert rise("muster_overdue_visits_total") == 0


# -- agents


def sent_to_the_door(token: str, body: bytes) -> int:
    async def story() -> int:
        headers = [(b"authorization", f"Bearer {token}".encode())]
        call = ApplicationCommunicator(
            AgentDoor(app=None), {"type": "http", "path": PATH, "method": "POST", "headers": headers}
        )
        await call.send_input({"type": "http.request", "body": body})
        status = (await call.receive_output(PATIENCE_SECONDS))["status"]
        await call.receive_output(PATIENCE_SECONDS)
        return status

    return asyncio.run(story())


def test_a_batch_is_timed_by_its_status_and_by_how_late_it_came(lab, rise):
    token = issue(identity(lab.running()))
    header = json.dumps({"version": 1, "seq": 1, "sent_at": time.time() - 100, "items": []}).encode()
    assert sent_to_the_door(token, struct.pack(">I", len(header)) + header) == 200
    assert sent_to_the_door("forged", b"") == 401
    counts = {status: rise("muster_ingest_batch_seconds_count", status=status) for status in ("200", "401")}
    assert counts == {"200": 1, "401": 1}
    assert rise("muster_ingest_lag_seconds_count") == 1
    assert 100 <= rise("muster_ingest_lag_seconds_sum") < 100 + PATIENCE_SECONDS


# -- doorbells and streams


def test_a_hint_that_redis_does_not_take_is_counted(rise, monkeypatch):
    away = Redis(port=free_port(), retry=Retry(NoBackoff(), 0))
    monkeypatch.setattr(doorbell, "redis_client", lambda: away)
    doorbell.hint(job=1, team=1, what="state")
    until(lambda: rise("muster_doorbell_failures_total", reason="not_sent") >= 1)
    assert rise("muster_doorbell_failures_total", reason="dropped") == 0


def test_rings_that_find_too_many_waiting_are_counted_and_equal_ones_are_not(rise, monkeypatch):
    monkeypatch.setattr(doorbell, "MOST_WAITING", 1)
    bell, is_sending, gate, done = doorbell.Bell(), threading.Event(), threading.Event(), threading.Event()
    bell.ring("first", lambda: (is_sending.set(), gate.wait(PATIENCE_SECONDS)))
    assert is_sending.wait(PATIENCE_SECONDS)
    for key in ("waits", "waits", "dropped", f"{doorbell.HINT}dropped"):
        bell.ring(key, done.set)
    assert rise("muster_doorbell_failures_total", reason="dropped") == 2
    gate.set()
    assert done.wait(PATIENCE_SECONDS)


def test_open_streams_are_told(lab, people, settings):
    settings.MUSTER_METRICS = ""  # no port
    metrics.serve()
    job = lab.running()
    access = Access(people.viewer.pk, frozenset({job.team_id}), Token.issue(people.viewer, "x")[0].pk)
    told = [REGISTRY.get_sample_value("muster_open_streams")]

    async def story():
        stream = log_stream.events(job.pk, access, {"limit": 1, "cursor": ""})
        await anext(stream)
        told.append(REGISTRY.get_sample_value("muster_open_streams"))
        await stream.aclose()
        told.append(REGISTRY.get_sample_value("muster_open_streams"))

    asyncio.run(story())
    assert told == [0, 1, 0]


# -- clusters


@pytest.fixture
def far(settings, tmp_path):
    """A Kubernetes cluster whose API server is away: (its adapter, a function that advances its clock)."""
    ahead = [0.0]
    options = {**kube_away.options(tmp_path), "clock": lambda: time.time() + ahead[0]}
    backend = "jobs.clusters.kubernetes.KubernetesCluster"
    settings.CLUSTERS = {**settings.CLUSTERS, "far": {"BACKEND": backend, "OPTIONS": options}}
    found = clusters.get("far")
    yield found, lambda seconds: ahead.__setitem__(0, ahead[0] + seconds)
    found.close()


def ages() -> dict[str, float | None]:
    registry = CollectorRegistry()
    registry.register(metrics.WatchMetrics())
    name = "muster_watch_age_seconds"
    return {
        kind: registry.get_sample_value(name, {"cluster": "far", "resource": kind}) for kind in ("pods", "services")
    }


def test_a_cluster_that_is_away_from_the_beginning_ages_from_the_start_of_the_watch(far):
    cluster, advance = far
    advance(1000)
    assert ages() == {"pods": None, "services": None}  # this process does not watch it
    cluster.view()
    advance(400)
    told = ages()
    assert all(400 <= age < 400 + PATIENCE_SECONDS for age in told.values()), told
    cluster.view().pods.confirm(time.time() + 1400)  # as a watch does at whatever the server sends
    advance(30)
    assert 30 <= ages()["pods"] < 30 + PATIENCE_SECONDS and ages()["services"] >= 430


def test_a_request_without_an_answer_is_timed(far, rise):
    with pytest.raises(Unreachable):
        far[0].observe(AttemptRef("1-abc", 1), [("worker", 0)])
    # The watches ask as well.
    assert rise("muster_cluster_call_seconds_count", verb="GET", status="none") >= 1


# -- errors


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (InvalidSpec(), "InvalidSpec"),
        (LeaseLost("x"), "LeaseLost"),
        (MissingFiles([]), "MusterError"),
        (ZeroDivisionError(), "other"),
    ],
)
def test_an_error_counts_for_the_nearest_class_of_the_tree(rise, error, name):
    assert name == "other" or isinstance(error, MusterError)
    measures.failed("page", error)
    assert rise("muster_errors_total", where="page", error=name) == 1


def test_refusals_of_the_api_are_counted_by_class(rise, lab, people, as_):
    job = lab.finish(lab.running(), 0, 0)
    owner = as_(people.owner)
    assert owner.get("/api/v1/jobs?limit=none").status_code == 422
    assert owner.get("/api/v1/jobs?after=none").status_code == 400
    assert owner.post(f"/api/v1/jobs/{job.pk}/suspend", **JSON).status_code == 409
    assert as_(people.viewer).post(f"/api/v1/jobs/{job.pk}/cancel", **JSON).status_code == 403
    names = ("InvalidInput", "Unreadable", "Conflict", "NotAllowed")
    assert {name: rise("muster_errors_total", where="api", error=name) for name in names} == dict.fromkeys(names, 1)


def test_what_a_page_may_not_do_and_defects_of_pages_are_counted(rise, lab, people, as_, monkeypatch):
    job = lab.running()
    client = as_(people.viewer)
    client.raise_request_exception = False
    assert client.post(f"/jobs/{job.pk}/cancel").status_code == 403
    assert client.get("/jobs/0").status_code == 404  # nobody's error
    assert rise("muster_errors_total", where="page", error="NotAllowed") == 1
    assert rise("muster_errors_total", where="page", error="other") == 0
    monkeypatch.setattr("jobs.models.querysets.JobQuerySet.readable_by", lambda *_: 1 / 0)
    assert client.get(f"/jobs/{job.pk}").status_code == 500
    assert client.get(f"/api/v1/jobs/{job.pk}").status_code == 500
    assert {where: rise("muster_errors_total", where=where, error="other") for where in ("page", "api")} == {
        "page": 1, "api": 1,
    }  # fmt: skip


def test_errors_of_visits_are_counted_also_those_that_a_visit_goes_on_after(rise, lab, job, on_memory, monkeypatch):
    schedule()
    lab.visit(job, times=3)
    lab.cluster.is_reachable = False
    sweeper.visit_job(job.pk)
    assert rise("muster_errors_total", where="visit", error="Unreachable") >= 1
    lab.cluster.is_reachable = True
    monkeypatch.setattr(lab.cluster, "observe", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sweeper.visit_job(job.pk)
    assert rise("muster_errors_total", where="visit", error="other") == 1


def test_a_launch_that_a_cluster_refuses_is_counted(rise, lab, job, on_memory, monkeypatch):
    schedule()
    monkeypatch.setattr(lab.cluster, "apply", Mock(side_effect=Refused("no such image")))
    sweeper.visit_job(job.pk)
    assert rise("muster_errors_total", where="visit", error="Refused") == 1


def test_a_launch_that_comes_after_the_end_of_its_attempt_is_counted(rise, lab, job, on_memory):
    schedule()
    lab.cluster.delete(AttemptRef(job.run, 1), 0)
    sweeper.visit_job(job.pk)
    assert rise("muster_errors_total", where="visit", error="Sealed") >= 1


def test_a_lease_lost_during_a_visit_is_counted(rise, lab, job, on_memory, monkeypatch):
    schedule()
    lab.visit(job, times=3)
    observe = lab.cluster.observe

    def robbed(*words):
        DjangoStore().take(job.pk, owner="second", now=timezone.now() + timedelta(minutes=1))
        return observe(*words)

    monkeypatch.setattr(lab.cluster, "observe", robbed)
    sweeper.visit_job(job.pk)
    assert rise("muster_errors_total", where="visit", error="LeaseLost") == 1


def test_errors_of_tasks_are_counted_and_a_visit_s_only_as_a_visit_s(rise, lab, monkeypatch):
    monkeypatch.setattr(tasks.compaction, "pack_all", lambda: 1 / 0)
    tasks.pack_logs.apply()
    assert rise("muster_errors_total", where="task", error="other") == 1
    monkeypatch.setattr(tasks.sweeper, "visit", lambda *_, **__: 1 / 0)
    tasks.reconcile.apply(args=[lab.submit().pk])
    assert rise("muster_errors_total", where="task", error="other") == 1
    assert rise("muster_errors_total", where="visit", error="other") == 1


# -- labels


def test_no_series_has_a_label_that_could_hold_the_id_of_a_job(lab, far):
    job = seed.failed(lab)
    far[0].view()
    seed.running(lab)
    collectors = [one for one in REGISTRY._collector_to_names if _is_ours(one)]
    names = {name for one in collectors for name in one._labelnames}
    families = [family for one in (metrics.RowMetrics(), metrics.WatchMetrics()) for family in one.collect()]
    told = {name for family in families for name in family._labelnames}
    assert len(collectors) > 10 and len(families) > 5 and {"kind", "cluster"} <= told
    assert (names | told) - LABELS == set()
    values = {value for family in families for sample in family.samples for value in sample.labels.values()}
    assert not values & {str(job.pk), job.run, job.name}


def _is_ours(collector) -> bool:
    return any(family.name.startswith("muster_") for family in getattr(collector, "describe", list)())
