"""The row of each launch: written with every step, completed where a process of the release before wrote none."""

import io
from contextlib import contextmanager

import pytest
from django.core.management import call_command
from django.db import transaction

from common import faultpoints
from jobs import services
from jobs.analysis.attempts import attempts, backfill, complete
from jobs.models import Attempt, AttemptFailure, JobEvent, Replica

pytestmark = pytest.mark.django_db


def row(job, number: int = 1) -> Attempt:
    return Attempt.objects.get(job=job, number=number)


def test_a_launch_is_a_row_with_its_times_its_place_and_its_end(lab):
    job = lab.running()
    assert (row(job).number, row(job).cluster, row(job).outcome) == (1, "local", "")
    assert (row(job).launched_at, row(job).applied_at, row(job).running_at) == (
        job.launched_at, job.applied_at, job.running_at,
    )  # fmt: skip
    assert None not in (row(job).applied_at, row(job).running_at)
    lab.finish(job, 0, 0)
    found = row(job)
    assert (found.ended_at, found.outcome, found.reason) == (job.finished_at, "succeeded", "completed")
    assert (found.message, found.running_at) == (job.message, job.running_at)


def test_each_retry_and_each_resume_has_a_row_of_its_own(lab):
    job = lab.running(max_retries=1)
    lab.finish(job, 3, 0)
    lab.visit(job, times=2)
    services.suspend(job=job, by=lab.user)
    lab.visit(job, times=4)
    assert job.phase == "suspended"
    assert [(one.number, one.outcome, one.reason) for one in job.attempts.all()] == [
        (1, "admitted", "retry"), (2, "suspended", "suspended"),
    ]  # fmt: skip
    assert row(job, 2).running_at is not None  # though the job's own column is reset


def test_a_job_that_never_started_has_no_attempt(lab):
    job = lab.submit(nodes=4)
    lab.submit(nodes=4)
    services.cancel(job=job, by=lab.user)
    lab.visit(job, times=2)
    assert attempts(job) == [] and not Attempt.objects.exists()


def test_events_replicas_and_verdicts_point_to_their_attempt(lab):
    job = lab.running()
    lab.finish(job, 3, 0)
    pk = row(job).pk
    events = JobEvent.objects.filter(job=job)
    assert set(events.filter(attempt=0).values_list("launch", flat=True)) == {None}
    assert set(events.filter(attempt=1).values_list("launch", flat=True)) == {pk}
    assert set(Replica.objects.filter(job=job).values_list("launch", flat=True)) == {pk}
    assert set(AttemptFailure.objects.filter(job=job).values_list("launch", flat=True)) == {pk}


def as_the_release_before(job) -> None:
    """It wrote the job's columns and its history, and knew neither rows of attempts nor references to them."""
    for model in (JobEvent, Replica, AttemptFailure):
        model.objects.filter(job=job).update(launch=None)
    Attempt.objects.filter(job=job).delete()


def told(job) -> list[tuple]:
    return [
        (one.attempt, one.started_at, one.running_at, one.ended_at, one.outcome, one.message, one.first_failing_rank)
        for one in attempts(job)
    ]


def test_rows_that_an_older_process_did_not_write_are_made_when_they_are_first_read(lab):
    job = lab.running(max_retries=1)
    lab.finish(job, 3, 0)
    lab.visit(job, times=2)
    before = told(job)
    assert [one[0] for one in before] == [1, 2]
    as_the_release_before(job)
    assert told(job) == before
    assert [one.number for one in job.attempts.all()] == [1, 2]


def test_an_attempt_that_an_older_process_ended_is_completed_and_its_columns_win(lab):
    job = lab.running()
    open_row = row(job)
    lab.finish(job, 0, 0)
    ended = told(job)
    Attempt.objects.filter(job=job).update(ended_at=None, outcome="", message=open_row.message, running_at=None)
    assert told(job) == ended
    assert row(job).ended_at == job.finished_at


def test_an_attempt_that_an_older_process_began_gets_its_row_with_the_next_step(lab):
    job = lab.running()
    as_the_release_before(job)
    lab.finish(job, 0, 0)
    assert (row(job).outcome, row(job).launched_at) == ("succeeded", job.launched_at)


def test_reading_a_job_whose_rows_are_whole_writes_nothing(lab, django_assert_num_queries):
    job = lab.running()
    with django_assert_num_queries(2):
        complete(job)


def test_the_backfill_completes_every_job_and_may_be_repeated(lab):
    jobs = [lab.running(nodes=1, max_retries=1) for _ in range(3)]
    for job in jobs:
        lab.finish(job, 3)
        as_the_release_before(job)
    never = lab.submit(nodes=1)
    for _ in range(2):
        out = io.StringIO()
        call_command("backfill_attempts", stdout=out)
        assert "done: 3 jobs" in out.getvalue()
    assert out.getvalue().endswith("done: 3 jobs, 0 rows now point to their attempt\n")
    for job in jobs:
        assert not JobEvent.objects.filter(job=job, attempt__gt=0, launch=None).exists()
        assert not Replica.objects.filter(job=job, launch=None).exists()
    assert backfill([never.pk]) == 0 and not never.attempts.exists()


def test_a_process_that_dies_while_it_completes_rows_leaves_them_to_the_next(lab, monkeypatch):
    """Killed within the transaction: all of the job's rows are made, or none."""
    job = lab.running(max_retries=1)
    lab.finish(job, 3, 0)
    lab.visit(job, times=2)
    before = told(job)
    as_the_release_before(job)

    @contextmanager
    def dies_at_its_end(name):
        with transaction.atomic():
            yield
            raise KeyboardInterrupt(name)

    with monkeypatch.context() as patched:
        patched.setattr(faultpoints, "atomic", dies_at_its_end)
        for act in (lambda: attempts(job), lambda: backfill([job.pk])):
            with pytest.raises(KeyboardInterrupt, match=r"attempts\.complete"):
                act()
            assert not job.attempts.exists()
    assert told(job) == before and backfill([job.pk]) > 0
