"""Agents whose server was restored from a backup: what they sent since is lost, what they send next counts."""

import time

import pytest

from jobs.ingest import apply, handler
from jobs.logs import reader
from jobs.models import Job, JobEvent, LogSegment, Rank, Replica
from tests.db.ingest.test_agent_door import body
from tests.support.builders import batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)


def restored(lab, *, lines: int = 2) -> Job:
    """A job as of a backup: the first batch of replica 0 was applied."""
    job = lab.running(nodes=1, nproc_per_node=2)
    text = [(T + number, f"line {number}") for number in range(lines)]
    apply.apply_batch(
        identity=identity(job), batch=batch(1, item("rank", rank=0, state="running", at=T), log_item(0, 0, text))
    )
    Replica.objects.filter(job=job).update(is_restored=True)
    return job


def test_the_next_batch_counts_whatever_its_number(lab):
    job = restored(lab)
    assert apply.apply_batch(identity=identity(job), batch=batch(8, log_item(0, 2, [(T + 9, "on")])))[0] == 8
    assert apply.apply_batch(identity=identity(job), batch=batch(9, log_item(0, 3, [(T + 10, "and on")])))[0] == 9
    assert reader.last_lines(job=job, attempt=1, rank=0, count=9) == ["line 0", "line 1", "on", "and on"]


def test_only_once(lab):
    job = restored(lab)
    apply.apply_batch(identity=identity(job), batch=batch(8))
    assert Replica.objects.get(job=job).is_restored is False
    assert apply.apply_batch(identity=identity(job), batch=batch(12))[0] == 8


def test_a_batch_that_the_backup_has_is_not_applied_twice(lab):
    job = restored(lab)
    assert apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(T, "line 0")])))[0] == 1
    assert LogSegment.objects.filter(job=job).count() == 1
    assert Replica.objects.get(job=job).is_restored


def test_lines_that_are_lost_are_a_gap_with_its_reason(lab):
    job = restored(lab)
    apply.apply_batch(identity=identity(job), batch=batch(8, log_item(0, 40, [(T + 9, "on")])))
    gap = LogSegment.objects.get(job=job, rank=0, path="")
    assert (gap.first_line, gap.lines) == (2, 38)
    note = JobEvent.objects.get(job=job, message__contains="restored from a backup")
    assert note.message.startswith("Log lines are missing: ")


def test_a_rank_that_started_since_is_running_once_it_is_heard_of(lab):
    job = restored(lab)
    apply.apply_batch(identity=identity(job), batch=batch(8, item("sample", rank=1, at=T, cpu=0.5)))
    assert set(Rank.objects.filter(job=job).values_list("rank", "state")) == {(0, "running"), (1, "running")}
    apply.apply_batch(
        identity=identity(job), batch=batch(9, item("rank", rank=1, state="succeeded", at=T, exit_code=0))
    )
    assert Rank.objects.get(job=job, rank=1).state == "succeeded"


def test_an_agent_that_meets_an_empty_database_keeps_its_replica(lab):
    """As between the start of a new server and the end of `restore`: a refusal would end a training that goes on."""
    job = restored(lab)
    who = identity(job)
    Job.objects.all().delete()
    answer = handler.answer(who, body(seq=9))
    assert (answer.status, "Retry-After" in answer.headers) == (503, True)


def test_an_agent_of_an_unknown_job_among_others_ends_its_replica(lab):
    job = restored(lab)
    who = identity(job)
    lab.submit()
    Job.objects.filter(pk=job.pk).delete()
    assert handler.answer(who, body(seq=9)).status == 403
