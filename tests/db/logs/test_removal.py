"""A finished job is removed after its `ttl_seconds`, with all that belongs to it; what must outlive it does."""

import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import AuditEntry, Token
from common.errors import Conflict, InvalidInput
from common.files import file_deletion
from jobs import services, tasks
from jobs.ingest import apply
from jobs.logs import compaction, removal, retention
from jobs.models import Delivery, Job, JobEvent, LogSegment, MetricChunk, RemovedJob, Webhook
from jobs.scheduling.usage import with_use
from jobs.submission.resolving import queue_defaults
from queues.models import Queue
from tests.db.api.test_api import SENT, Api
from tests.support.builders import batch, identity, item, log_item
from workspaces import garbage
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db
HOUR = 3600
T = float(int(time.time()) - 1800)


@pytest.fixture(autouse=True)
def files(settings, tmp_path) -> Path:
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.CLUSTERS = {
        "local": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": str(tmp_path / "local")}}
    }
    return tmp_path


def ended(lab, **sent) -> Job:
    """A job with rows in every table, a log, and a folder, that has just succeeded."""
    job = lab.running(ttl_seconds=HOUR, **sent)
    points = item("metrics", rank=0, points=[[T, 1, {"loss": 0.5}]])
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(T, "hello")]), points))
    (Path(lab.root) / "local/jobs" / job.run / "shared").mkdir(parents=True)
    return lab.finish(job, 0, 0)


@pytest.fixture
def lab(lab, tmp_path):
    lab.root = tmp_path
    return lab


@pytest.fixture
def job(lab) -> Job:
    return ended(lab)


def later(job: Job, seconds: float = HOUR + 1):
    return job.finished_at + timedelta(seconds=seconds)


def left_of(pk: int) -> dict[str, int]:
    """Rows that still refer to the job, by table; every table that can is looked at."""
    related = [one for one in Job._meta.related_objects if one.related_model._meta.managed]
    counts = {
        one.related_model.__name__: one.related_model.objects.filter(**{one.field.name: pk}).count() for one in related
    }
    return {name: count for name, count in counts.items() if count}


def test_a_job_is_removed_after_its_time_with_every_row_and_file(job, files, people):
    assert job.phase == "succeeded" and {"LogSegment", "MetricChunk", "Replica", "Attempt"} <= left_of(job.pk).keys()
    stays = list((files / "local/jobs").iterdir())
    assert removal.remove_due(now=later(job, HOUR - 1)) == 0 and left_of(job.pk)

    assert removal.remove_due(now=later(job)) == 1
    assert not Job.objects.filter(pk=job.pk).exists() and left_of(job.pk) == {}
    assert list(files.rglob("*.z")) == [] and list((files / "local/jobs").iterdir()) == [] and len(stays) == 1
    row = RemovedJob.objects.get(pk=job.pk)
    assert (row.team, row.queue, row.user, row.name) == (job.team, job.queue, job.user, job.name)
    assert (row.phase, row.slots, row.attempt, row.finished_at) == ("succeeded", 4, 1, job.finished_at)
    assert row.held_seconds > 0 and row.started_at is not None and row.files_deleted_at is not None
    assert removal.remove_due(now=later(job)) == 0


def test_the_audit_says_who_it_was(job):
    removal.remove_due(now=later(job))
    entry = AuditEntry.objects.get(act="job.remove")
    assert (entry.actor, entry.target_id, entry.target_name, entry.team) == (None, str(job.pk), job.name, job.team)
    assert entry.before["phase"] == "succeeded"


def test_it_disappears_from_every_interface(client, people, job):
    api = Api(client, Token.issue(people.owner, "test")[1])
    assert api.get(f"/jobs/{job.pk}").json()["removal_at"].startswith(later(job, HOUR).isoformat()[:19])
    removal.remove_due(now=later(job))
    answer = api.get(f"/jobs/{job.pk}")
    assert answer.status_code == 404 and answer["Content-Type"].startswith("application/problem+json")
    assert api.get("/jobs").json()["results"] == []
    client.force_login(people.owner)
    assert client.get(f"/jobs/{job.pk}").status_code == 404


def test_jobs_without_it_and_jobs_that_have_not_ended_stay(lab):
    going, forever = lab.running(ttl_seconds=1, nodes=1), lab.running(nodes=1, nproc_per_node=1)
    lab.finish(forever, 0)
    assert removal.remove_due(now=timezone.now() + timedelta(days=9999)) == 0
    assert Job.objects.filter(pk__in=[going.pk, forever.pk]).count() == 2


def test_it_stays_while_its_agents_may_still_deliver(lab, settings):
    job = lab.running(ttl_seconds=1)
    job = lab.finish(job, 0, 0)
    drain = settings.MUSTER_AGENT_DRAIN_SECONDS
    assert job.removal_at == later(job, drain)
    assert removal.remove_due(now=later(job, drain - 1)) == 0
    assert removal.remove_due(now=later(job, drain)) == 1


def test_a_queue_gives_it_to_its_jobs(lab, queue):
    queue.defaults = queue_defaults(queue, {"ttl_seconds": 7200})
    assert lab.submit().ttl_seconds == 7200
    assert lab.submit(ttl_seconds=60).ttl_seconds == 60
    with pytest.raises(InvalidInput, match="must be from 1 to 315360000"):
        queue_defaults(queue, {"ttl_seconds": 315360001})


def test_a_plan_says_when(people, queue):
    sent = {**SENT, "ttl_seconds": 7200}
    sent.pop("queue")
    notes = services.preview(user=people.owner, queue=queue, sent=sent).notes
    assert "removed 2 h after its end, with its log, metrics, history and local files (ttl_seconds)" in notes
    (early,) = (
        one for one in services.preview(user=people.owner, queue=queue, sent={**sent, "ttl_seconds": 1}).notes
        if "ttl_seconds" in one
    )  # fmt: skip
    assert early.startswith("removed 5 min after its end") and "not earlier" in early


def test_what_a_queue_uses_is_the_same_before_and_after(lab, job):
    lab.running(nodes=1)
    (before,) = with_use(Queue.objects.filter(pk=job.queue_id)).values_list("used", flat=True)
    removal.remove_due(now=later(job))
    (after,) = with_use(Queue.objects.filter(pk=job.queue_id)).values_list("used", flat=True)
    assert before == after == 2
    assert RemovedJob.objects.filter(queue=job.queue).values_list("slots", flat=True).get() == 4


def test_its_webhooks_are_told_first(job, people):
    hook = Webhook.objects.create(team=job.team, name="chat", host="x", sealed_url="", events=["end"], sealed_secret="")
    due = Delivery.objects.create(webhook=hook, job=job, event="succeeded", payload={}, next_try_at=timezone.now())
    assert removal.remove_due(now=later(job)) == 0
    Delivery.objects.filter(pk=due.pk).update(next_try_at=None, gave_up_at=timezone.now())
    assert removal.remove_due(now=later(job)) == 1 and not Delivery.objects.exists()


def test_a_late_repetition_of_its_submission_runs_nothing_twice(lab, people, queue):
    sent = {"command": "torchrun train.py", "ttl_seconds": HOUR}
    asked = {"user": people.owner, "queue": queue, "sent": sent, "idempotency_key": "nightly"}
    job, _ = services.submit(**asked)
    services.cancel(job=job, by=people.owner)
    job = lab.visit(job, times=2)
    assert services.submit(**asked) == (job, False)
    removal.remove_due(now=later(job))
    with pytest.raises(Conflict, match=f"already made job {job.name} .id {job.pk}.* has been removed on .* new key"):
        services.submit(**asked)
    assert services.submit(**{**asked, "idempotency_key": "tomorrow"})[1]


def test_its_name_and_its_code_are_free(lab, people, team, queue):
    old = timezone.now() - timedelta(days=30)
    code = Workspace.objects.create(
        team=team, created_by=people.owner, digest="d" * 64, size_bytes=1, files=1, used_at=old
    )
    sent = {"command": "torchrun train.py", "name": "night", "ttl_seconds": HOUR}
    job, _ = services.submit(user=people.owner, queue=queue, sent=sent, workspace=code)
    services.cancel(job=job, by=people.owner)
    job = lab.visit(job, times=2)
    again, _ = services.resubmit(job=job, by=people.owner)
    assert again.ttl_seconds == HOUR and again.name == "night"
    services.cancel(job=again, by=people.owner)
    again = lab.visit(again, times=2)
    Workspace.objects.update(used_at=old)
    before = timezone.now() - timedelta(days=7)
    assert garbage.expire(team, before=before) == 0
    removal.remove_due(now=later(again))
    assert garbage.expire(team, before=before) == 1


def test_a_request_that_comes_while_it_is_removed_is_answered(job, people):
    removal.remove_due(now=later(job))
    assert services.cancel(job=job, by=people.owner).phase == "succeeded"
    with pytest.raises(Conflict, match="resubmit it"):
        services.suspend(job=job, by=people.owner)
    with pytest.raises(Conflict, match="has been removed"):
        retention.delete_log(job=job, by=people.owner)
    assert compaction.pack(10**9) == 0
    assert services.resubmit(job=job, by=people.owner)[1]


def test_a_turn_is_bounded_and_the_next_one_goes_on(lab, queue, monkeypatch):
    Queue.objects.filter(pk=queue.pk).update(nominal=100)
    jobs = [ended(lab) for _ in range(3)]
    monkeypatch.setattr(removal, "MOST_JOBS", 2)
    now = later(jobs[-1])
    assert [removal.remove_due(now=now) for _ in range(3)] == [2, 1, 0]


def test_a_job_with_more_rows_than_a_turn_may_delete_goes_in_several(job, monkeypatch):
    monkeypatch.setattr(removal, "MOST_BATCHES", 1)
    assert removal.remove_due(now=later(job)) == 0
    assert Job.objects.filter(pk=job.pk).exists() and not LogSegment.objects.exists() and MetricChunk.objects.exists()
    assert removal.remove_due(now=later(job)) == 0 and not MetricChunk.objects.exists()
    assert removal.remove_due(now=later(job)) == 1


def test_files_that_a_dead_turn_left_are_deleted_by_the_next(job, files):
    kept = RemovedJob(
        id=job.pk, uid=job.uid, team=job.team, queue=job.queue, user=job.user, name=job.name, framework="torchrun",
        phase="succeeded", slots=4, attempt=1, held_seconds=1, created_at=job.created_at, finished_at=job.finished_at,
    )  # fmt: skip
    job.delete()
    kept.save(force_insert=True)
    assert list(files.rglob("*.z")) and removal.remove_due(now=timezone.now()) == 0
    assert not list(files.rglob("*.z")) and not list((files / "local/jobs").iterdir())
    kept.refresh_from_db()
    assert kept.files_deleted_at is not None


def test_a_file_that_packing_stored_meanwhile_is_swept(job, files):
    removal.remove_due(now=(now := timezone.now() + timedelta(hours=2)))
    stray = files / f"files/logs/{job.run}/1/worker-0-packed-1-00000000.z"
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"x")
    assert retention.collect(now=now + timedelta(hours=1)).files == [f"logs/{job.run}/1/{stray.name}"]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_removed_during_a_backup(job):
    with file_deletion.paused(say=print):
        assert removal.remove_due(now=later(job)) == 0
    assert Job.objects.filter(pk=job.pk).exists()


def test_an_agent_of_a_removed_job_is_told_to_end(job):
    """Not to retry for ever, though there is no job at all."""
    removal.remove_due(now=later(job))
    assert not Job.objects.exists()
    with pytest.raises(apply.NotAllowed, match="the agent ends its replica"):
        apply.apply_batch(identity=identity(job), batch=batch(2))


def test_the_task_of_every_few_minutes_removes(job):
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(seconds=HOUR + 1))
    tasks.sweep_logs()
    assert RemovedJob.objects.filter(pk=job.pk).exists()


def test_a_removal_is_one_transaction(job, monkeypatch):
    """What fails within it changes nothing: no row that remains, and no entry of the audit."""

    def fail(*_, **__):
        raise IntegrityError

    monkeypatch.setattr(Job, "delete", fail)
    with pytest.raises(IntegrityError), transaction.atomic():
        removal.remove_due(now=later(job))
    assert not RemovedJob.objects.exists() and not AuditEntry.objects.filter(act="job.remove").exists()
    assert JobEvent.objects.filter(job=job).exists()
