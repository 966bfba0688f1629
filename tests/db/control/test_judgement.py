"""Reports of agents wake their job, and its visit judges: also after the end, and whichever process dies in between."""

import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from common import faultpoints
from common.signals import doorbell
from jobs.analysis import failure_rows
from jobs.control import judgement, sweeper
from jobs.control.store import DjangoStore
from jobs.ingest import apply
from jobs.models import AttemptFailure, Job, JobEvent, Replica
from tests.support.builders import batch, identity, item, log_item

NOW = time.time()
LINES = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "KeyError: 'lr'")
ERROR = {"traceback": "\n".join(LINES), "stderr": "", "stdout": "", "oom_kills": 0}
FAILED = item("rank", rank=1, local_rank=1, state="failed", exit_code=1, at=NOW, error_at=NOW, error=ERROR)


@pytest.fixture
def rung(monkeypatch) -> list[tuple]:
    rung = []
    monkeypatch.setattr(doorbell, "poke", lambda task, *words, **more: rung.append((task, *words)))
    return rung


@pytest.fixture
def job(lab) -> Job:
    return lab.running()


def send(job, *items, seq=1, attempt=None):
    who = identity(job)
    apply.apply_batch(identity=replace(who, attempt=attempt or who.attempt), batch=batch(seq, *items))


def unjudged(job) -> int:
    return Replica.objects.filter(job=job, unjudged_at__isnull=False).count()


class Dies(BaseException):
    """Nothing that runs in a process outlives its death, so no handler of exceptions catches this."""


@contextmanager
def dies_at(monkeypatch, name: str):
    """Have this process die where `name` begins, as far as a process can that goes on."""

    @contextmanager
    def around(point: str):
        if point == name:
            raise Dies
        yield

    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "around", around)
        patched.setattr(faultpoints, "atomic", around)
        yield


def test_a_failed_rank_wakes_the_job_and_the_visit_judges(job, lab, rung):
    Job.objects.update(next_reconcile_at=timezone.now() + timedelta(seconds=60))
    send(job, FAILED)
    assert rung == [("jobs.reconcile", job.pk)] and Job.objects.due(timezone.now()).exists()
    assert not AttemptFailure.objects.exists(), "a batch is not delayed by a judgement"
    lab.visit(job)
    assert AttemptFailure.objects.get().headline == "rank 1: KeyError: 'lr'"
    assert (unjudged(job), job.phase) == (0, "running")


def test_a_batch_without_an_end_wakes_nobody(job, rung):
    started = item("rank", rank=1, local_rank=1, pid=7, state="running", at=NOW)
    send(job, started, log_item(-1, 0, [(NOW, "hello")]))
    assert (rung, unjudged(job)) == ([], 0)


def test_a_rank_that_starts_again_wakes_a_job_that_has_a_verdict(job, lab, rung):
    send(job, FAILED)
    lab.visit(job)
    rung.clear()
    send(job, item("rank", rank=1, local_rank=1, pid=9, state="running", at=NOW + 1, restart=1), seq=2)
    assert ("jobs.reconcile", job.pk) in rung
    lab.visit(job)
    assert not AttemptFailure.objects.exists()


class TestAfterTheEnd:
    @pytest.fixture
    def job(self, lab):
        return lab.finish(lab.running(), 1, 1)

    def test_the_verdict_the_message_and_the_history_are_corrected(self, job, lab, rung):
        assert job.message == "worker-0 exited with code 1"
        send(job, FAILED)
        assert ("jobs.reconcile", job.pk) in rung
        job = lab.visit(job)
        found = AttemptFailure.objects.get()
        assert (found.rank, found.after_end) == (1, True)
        assert (job.phase, job.message, job.next_reconcile_at) == ("failed", "rank 1: KeyError: 'lr'", None)
        notes = job.events.filter(kind="note").values_list("message", flat=True)
        assert "after the end of attempt 1, its agents reported: rank 1: KeyError: 'lr'" in notes

    def test_it_is_said_where_the_verdict_is_shown(self, job, lab, as_, people):
        send(job, FAILED)
        lab.visit(job)
        client = as_(people.owner)
        assert client.get(f"/api/v1/jobs/{job.pk}").json()["first_failure"]["after_end"] is True
        assert "after the end" in client.get(f"/jobs/{job.pk}").text

    def test_a_repeated_report_changes_nothing(self, job, lab):
        send(job, FAILED)
        lab.visit(job)
        events = JobEvent.objects.count()
        send(job, item("rank", rank=0, local_rank=0, state="failed", signal=15, is_stopped=True, at=NOW + 2), seq=2)
        lab.visit(job)
        assert (JobEvent.objects.count(), unjudged(job)) == (events, 0)

    def test_its_cluster_need_not_be_configured_any_more(self, job, settings):
        send(job, FAILED)
        settings.CLUSTERS = {}
        assert sweeper.visit_job(job.pk) is None
        assert AttemptFailure.objects.get().rank == 1

    def test_an_earlier_attempt_is_judged_beside_the_current_one(self, lab):
        job = lab.running(max_retries=1)
        job = lab.visit(lab.finish(job, 1, 1), times=4)
        send(job, FAILED, attempt=1)
        job = lab.visit(job)
        assert (job.attempt, job.phase) == (2, "running")
        found = AttemptFailure.objects.get()
        assert (found.attempt, found.rank, found.after_end) == (1, 1, True)

    def test_a_writer_that_died_before_it_woke_the_job(self, job, monkeypatch, rung):
        with dies_at(monkeypatch, "ingest.wake"), pytest.raises(Dies):
            send(job, FAILED)
        assert (rung, unjudged(job)) == ([], 1)
        Replica.objects.update(unjudged_at=timezone.now() - sweeper.UNJUDGED)  # and so did its agent
        sweeper.sweep(timezone.now() + timedelta(seconds=1))
        assert AttemptFailure.objects.get().rank == 1


@pytest.mark.parametrize("point", ["failures.write", "failures.judged"])
def test_a_visit_that_died_while_it_judged_is_repeated(job, lab, monkeypatch, point):
    send(job, FAILED)
    with dies_at(monkeypatch, point), pytest.raises(Dies):
        lab.visit(job)
    assert unjudged(job) == 1
    lab.clock.advance(10)  # its lease expires
    lab.visit(job)
    assert (unjudged(job), AttemptFailure.objects.get().rank) == (0, 1)


def test_a_repeated_batch_wakes_the_job_again_until_it_was_judged(job, lab, rung):
    send(job, FAILED)
    send(job, FAILED)
    assert rung == [("jobs.reconcile", job.pk)] * 2
    lab.visit(job)
    rung.clear()
    send(job, FAILED)
    assert rung == []


def test_a_report_during_the_judgement_is_left_to_the_next_visit(job, lab, monkeypatch):
    real, later = failure_rows.refresh, item("rank", rank=0, local_rank=0, state="failed", exit_code=3, at=NOW - 5)

    def refresh(*given, **more):
        real(*given, **more)
        monkeypatch.setattr(failure_rows, "refresh", real)
        send(job, later, seq=2)

    send(job, FAILED)
    monkeypatch.setattr(failure_rows, "refresh", refresh)
    lab.visit(job)
    assert unjudged(job) == 1
    lab.visit(job)
    assert unjudged(job) == 0


def test_an_exception_leaves_the_report_unjudged_and_the_step_taken(job, lab, monkeypatch):
    def broken(*given, **more):
        raise ValueError("a text that no rule expects")

    monkeypatch.setattr(judgement.failure_rows, "refresh", broken)
    send(job, FAILED)
    job = lab.finish(job, 1, 1)
    assert (job.phase, job.message) == ("failed", "worker-0 exited with code 1")


@pytest.mark.parametrize(("has_reports", "wakes"), [(False, 0), (True, 1)])
def test_a_job_that_ends_in_a_visit_is_visited_again_only_for_reports(job, rung, has_reports, wakes):
    store, now = DjangoStore(), timezone.now() + timedelta(hours=1)
    held = store.take(job.pk, owner="first", now=now)
    assert store.take(job.pk, owner="second", now=now) is None, "a knock during the visit"
    Job.objects.update(phase="succeeded", finished_at=now)
    Replica.objects.filter(index=0).update(unjudged_at=now if has_reports else None)
    rung.clear()
    store.release(held, due=None)
    assert rung == wakes * [("jobs.reconcile", job.pk)]
