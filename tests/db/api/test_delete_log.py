"""Deleting the log of a finished job to free space: who may, the audit entry, and what of the job stays."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounts.models import AuditEntry
from common.errors import Conflict
from jobs.ingest import apply
from jobs.logs import reader, retention, usage
from jobs.models import Job, JobEvent, LogBudget, LogSegment, MetricChunk
from tests.support.builders import batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]


@pytest.fixture
def running(lab):
    usage.forget()
    job = lab.running()
    points = item("metrics", rank=0, points=[[1.0, 1, {"loss": 0.5}]])
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(1.0, "hello"), (2.0, "world")]), points))
    return job


@pytest.fixture
def job(lab, running):
    return lab.finish(running, 0, 0)


def files(settings) -> list:
    return list(settings.MEDIA_ROOT.rglob("*.z"))


def test_log_lines_and_files_are_deleted_and_the_rest_stays(job, people, settings):
    assert len(files(settings)) == 1
    retention.delete_log(job=job, by=people.owner)
    job.refresh_from_db()
    assert (files(settings), LogSegment.objects.count(), job.log_bytes) == ([], 0, 0)
    assert MetricChunk.objects.filter(job=job).exists()
    (line,) = reader.read(job=job).lines
    assert line.is_gap and line.text.startswith("[this log was deleted on ")
    note = JobEvent.objects.get(job=job, kind="note")
    assert note.message.startswith("its log was deleted by owner; ") and note.user == people.owner
    assert usage.by_team() == {}


def test_repeated_deletions_are_audited_once(job, people):
    for _ in range(3):
        retention.delete_log(job=job, by=people.owner)
    entry = AuditEntry.objects.get(act="job.delete-log")
    assert (entry.actor, entry.target_id, entry.after) == (people.owner, str(job.pk), {"bytes": 0})
    assert entry.before["bytes"] > 0


def test_the_log_of_a_running_job_cannot_be_deleted(running, people):
    with pytest.raises(Conflict, match="may still print"):
        retention.delete_log(job=running, by=people.owner)
    assert LogSegment.objects.count() == 1


def test_the_daily_collection_deletes_files_that_a_killed_process_left(job, people, settings, monkeypatch):
    monkeypatch.setattr(retention, "delete_files", lambda job: None)
    retention.delete_log(job=job, by=people.owner)
    monkeypatch.undo()
    assert len(files(settings)) == 1
    later = timezone.now() + timedelta(hours=1)
    assert len(retention.collect(now=later).files) == 1 and files(settings) == []


def test_the_page_offers_deletion_once_the_job_is_finished_to_those_who_may(as_, people, running, lab):
    assert "confirm-delete-log" not in as_(people.owner).get(f"/jobs/{running.pk}").text
    job = lab.finish(running, 0, 0)
    assert "confirm-delete-log" in as_(people.owner).get(f"/jobs/{job.pk}").text
    assert "confirm-delete-log" not in as_(people.viewer).get(f"/jobs/{job.pk}").text
    assert as_(people.owner).post(f"/jobs/{job.pk}/delete-log").url == f"/jobs/{job.pk}"
    page = as_(people.owner).get(f"/jobs/{job.pk}").text
    assert "confirm-delete-log" not in page and "its log was deleted by owner" in page


# -- manage.py team_logs


def test_the_command_shows_log_usage_and_changes_the_limits(job, capsys):
    call_command("team_logs", "nlp", "--job-bytes", "1000", "--team-bytes", "0")
    budget = LogBudget.objects.get(team=job.team)
    assert (budget.job_bytes, budget.team_bytes) == (1000, 0)
    assert "of 0 bytes; one job's log may take 1,000" in capsys.readouterr().out
    call_command("team_logs", "nlp", "--job-bytes", "default")
    budget.refresh_from_db()
    assert (budget.job_bytes, budget.team_bytes) == (None, 0)


def test_the_command_deletes_by_job_and_by_age(job, lab, capsys):
    call_command("team_logs", "nlp", "--delete-older-than", "1", "--delete-job", str(job.pk), "--dry-run")
    assert f"would delete the log of job {job.pk}" in capsys.readouterr().out and LogSegment.objects.exists()
    call_command("team_logs", "nlp", "--delete-older-than", "1")
    assert LogSegment.objects.exists()
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(days=2))
    call_command("team_logs", "nlp", "--delete-older-than", "1")
    assert not LogSegment.objects.exists()
    assert AuditEntry.objects.get(act="job.delete-log").actor is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x"], "no team x"),
        (["nlp", "--job-bytes", "many"], "whole number"),
        (["nlp", "--delete-job", "7000000"], "7000000"),
    ],
)
def test_the_command_gives_the_reason_for_a_refusal(job, arguments, words):
    with pytest.raises(CommandError, match=words):
        call_command("team_logs", *arguments)
