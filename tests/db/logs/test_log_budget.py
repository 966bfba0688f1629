"""Logs are bounded per job and per team. Dropped lines become gaps with a note, and other teams lose nothing."""

import os
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Team
from jobs.ingest import apply
from jobs.logs import compaction, reader, retention, storage, usage
from jobs.models import Job, JobEvent, LogBudget, LogSegment, Rank, Replica
from queues.models import Queue
from tests.db.ingest.test_full_disk import small_disk  # noqa: F401 - a fixture
from tests.support.builders import Lab, batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = 60.0 * (int(time.time()) // 60 - 10)  # a whole minute, a while ago


@pytest.fixture(autouse=True)
def fresh():
    usage.forget()
    yield
    usage.forget()


@pytest.fixture
def job(lab):
    return lab.running()


@pytest.fixture
def other(people):
    """A job of another team."""
    queue = Queue.objects.create(name="vision", team=Team.objects.get(name="vision"), cluster="local", nominal=8)
    return Lab(queue, people.stranger).running()


def noise(rank: int, first: int, *, at: float = T, kilobytes: int = 40):
    """Lines of 1,000 random hex digits; on disk they take about half of that."""
    return log_item(rank, first, [(at, os.urandom(500).hex()) for _ in range(kilobytes)])


def send(job, seq: int, *items, index: int = 0) -> int:
    return apply.apply_batch(identity=identity(job, index), batch=batch(seq, *items))[0]


def notes(job) -> list[str]:
    return list(JobEvent.objects.filter(job=job, kind="note").values_list("message", flat=True))


def stored(settings) -> int:
    return sum(path.stat().st_size for path in (settings.MEDIA_ROOT).rglob("*.z"))


def flood(job, batches: int, *, first_seq: int = 1) -> None:
    for seq in range(first_seq, first_seq + batches):
        send(job, seq, noise(0, 40 * (seq - 1), at=T + seq / 1000))


def test_a_flooding_job_stops_at_its_budget_and_every_line_is_accounted_for(job, settings):
    settings.MUSTER_LOG_JOB_BYTES = 100_000
    flood(job, 50)
    assert 100_000 <= stored(settings) < 125_000  # plus one batch, and the reserve of a fifth
    assert Replica.objects.get(job=job, index=0).log_bytes == stored(settings)
    rows = LogSegment.objects.filter(job=job).order_by("first_line")
    assert sum(row.lines for row in rows) == 40 * 50 == Rank.objects.get(job=job, rank=0).lines
    lines = reader.read(job=job, limit=5000).lines
    assert sum(line.is_gap for line in lines) > 10 and not lines[0].is_gap
    (note,) = notes(job)
    assert (
        note.startswith("Log lines are left out: this job's log takes 1")
        and "may take 98 KiB" in note
        and "Print less" in note
    )


def test_the_last_output_of_a_failed_rank_is_kept_beyond_the_budget(job, settings):
    settings.MUSTER_LOG_JOB_BYTES = 100_000
    flood(job, 6)
    error = log_item(0, 280, [(T + 10, "Traceback"), (T + 10, "ValueError: label 17")])
    send(
        job,
        7,
        noise(0, 240, at=T + 9),
        error,
        item("rank", rank=0, local_rank=0, state="failed", exit_code=1, at=T + 10),
    )
    assert reader.last_lines(job=job, attempt=1, rank=0, count=2) == ["Traceback", "ValueError: label 17"]


def test_a_thinned_log_keeps_a_sample_of_each_minute(job, settings):
    settings.MUSTER_LOG_JOB_BYTES = 200_000
    flood(job, 9)  # a batch takes 23 kB
    for minute in range(1, 4):
        send(job, 9 + minute, noise(0, 360 + 40 * (minute - 1), at=T + 60 * minute))
    kept = [
        line for line in reader.read(job=job, limit=5000).lines if line.at.timestamp() >= T + 60 and not line.is_gap
    ]
    assert len({line.at for line in kept}) == 3


def test_a_team_budget_covers_all_its_jobs_and_no_other_team(lab, other, settings):
    settings.MUSTER_LOG_TEAM_BYTES = 100_000
    first, second = lab.running(nodes=1), lab.running(nodes=1)
    flood(first, 3)
    flood(second, 3)
    flood(second, 3, first_seq=4)
    flood(other, 4)
    (note,) = notes(second)
    assert note.startswith("Log lines are left out: the logs of this team take") and "muster delete-log" in note
    assert not any(line.is_gap for line in reader.read(job=other, limit=5000).lines) and notes(other) == []


def test_the_budget_of_a_team_overrides_the_default(job, other, settings):
    LogBudget.objects.create(team=job.team, job_bytes=30_000)
    LogBudget.objects.create(team=other.team, team_bytes=0)
    settings.MUSTER_LOG_TEAM_BYTES = 30_000
    for one in (job, other):
        flood(one, 4)
    assert any(line.is_gap for line in reader.read(job=job, limit=5000).lines)
    assert not any(line.is_gap for line in reader.read(job=other, limit=5000).lines)


def test_counting_adds_no_query_to_a_batch(job):
    send(job, 1, noise(0, 0))
    with CaptureQueriesContext(
        connection,
    ) as asked:
        send(job, 2, noise(0, 40))
    assert len(asked) == 2  # one reads the replica, one writes the batch


def test_the_budget_applies_across_processes(job, settings):
    """The totals in memory are only a cache; a process without them queries the rows."""
    settings.MUSTER_LOG_JOB_BYTES = 100_000
    flood(job, 5)
    usage.forget()
    flood(job, 5, first_seq=6)
    assert stored(settings) < 125_000


def test_a_finished_job_counts_with_the_size_of_its_packed_log(job, lab, settings):
    flood(job, 5)
    lab.finish(job, 0, 0)
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(hours=1))
    compaction.pack(Replica.objects.get(job=job, index=0).pk)
    assert retention.settle(now=timezone.now()) == 1
    job.refresh_from_db()
    assert job.log_bytes == sum(LogSegment.objects.filter(job=job).values_list("size_bytes", flat=True)) > 0
    assert usage.by_team(job.team_id) == {job.team_id: job.log_bytes}
    assert retention.settle(now=timezone.now()) == 0


def test_on_a_nearly_full_disk_a_small_team_loses_no_line_to_a_large_one(
    job,
    other,
    small_disk,  # noqa: F811
    settings,
    monkeypatch,
):
    """A disk of 256 kB: below 26 kB free, only teams that use less than their share may write."""
    settings.MEDIA_ROOT = small_disk
    monkeypatch.setattr(storage, "refusals", storage.Refusals())
    send(other, 1, noise(0, 0, kilobytes=10))
    for seq in range(1, 40):
        usage.known.forget_disk()
        send(job, seq, noise(0, 10 * (seq - 1), at=T + seq / 1000, kilobytes=10))
    disk = os.statvfs(small_disk)
    assert disk.f_bavail * disk.f_frsize > 8_000  # the flood has stopped before the disk was full
    usage.known.forget_disk()
    send(other, 2, noise(0, 10, kilobytes=10))
    assert not any(line.is_gap for line in reader.read(job=other, limit=5000).lines) and notes(other) == []
    (note,) = notes(job)
    assert note.startswith("Log lines are left out: the server's disk for logs has")


def test_a_deleted_log_does_not_grow_again(job):
    send(job, 1, noise(0, 0))
    Job.objects.filter(pk=job.pk).update(logs_collected_at=timezone.now())
    send(job, 2, noise(0, 40))
    assert LogSegment.objects.get(first_line=40).path == ""
