"""Compacted logs read as before at every moment; logs past their retention are deleted, with a line that says so."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from jobs.core.cursor import Cursor
from jobs.ingest import apply
from jobs.logs import compaction, reader, retention, search, segments
from jobs.logs.segments import EVERYBODY, LogSource
from jobs.models import Job, LogSegment, Replica
from tests.support.builders import batch, identity, item, log_item

pytestmark = pytest.mark.django_db
T = float(int(time.time()) - 1800)
BATCHES = 40


@pytest.fixture(autouse=True)
def files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"
    return settings.MEDIA_ROOT


@pytest.fixture
def job(lab):
    """Two ranks and a launcher, with a gap in the middle of rank 0."""
    job = lab.running()
    for seq in range(BATCHES):
        first = seq * 10 + (90 if seq > 19 else 0)
        some = [
            log_item(rank, f, [(T + seq, f"{rank}:{f + n}") for n in range(10)])
            for rank, f in ((0, first), (1, seq * 10))
        ]
        some.append(log_item(-1, seq, [(T + seq, f"launcher {seq}")]))
        if seq == 19:
            some.append(item("gap", rank=0, first_line=200, lines=90, raw_bytes=900, first_at=T + 19, last_at=T + 19))
        apply.apply_batch(identity=identity(job), batch=batch(seq + 1, *some))
    return job


def everything(job) -> list[tuple[int, str]]:
    found, cursor = [], ""
    while (page := reader.read(job=job, cursor=cursor, limit=97)).lines:
        found += [(line.rank, line.text) for line in page.lines]
        cursor = page.cursor
    return found


def stored(files: Path) -> list[Path]:
    return list(files.rglob("*.z"))


def by_rank(lines):
    return {rank: [text for number, text in lines if number == rank] for rank in (-1, 0, 1)}


def pack(job) -> int:
    return compaction.pack(Replica.objects.get(job=job, index=0).pk)


def age(paths, seconds: float = 3600) -> None:
    for path in paths:
        os.utime(path, (time.time() - seconds,) * 2)


def test_a_packed_log_has_the_same_lines_in_a_few_rows_and_one_file(job, files):
    before = everything(job)
    assert len(before) == 841 and pack(job) == 1
    assert by_rank(everything(job)) == by_rank(before)
    assert (
        LogSegment.objects.filter(is_packed=True).count() == 4
    )  # rank 0 before and after its gap, rank 1, the launcher
    assert LogSegment.objects.exclude(path="").values("path").distinct().count() == 1
    assert [line.text for line in reader.read(job=job, source=LogSource(1), tail=3).lines] == [
        "1:397",
        "1:398",
        "1:399",
    ]
    assert len(search.search(job=job, by=1, text="launcher").lines) == BATCHES


@pytest.mark.parametrize("limit", [1, 33, 420])
def test_a_reader_in_the_middle_continues_after_packing(job, limit):
    page = reader.read(job=job, limit=limit)
    pack(job)
    seen, cursor = [(line.rank, line.text) for line in page.lines], page.cursor
    while (page := reader.read(job=job, cursor=cursor, limit=limit)).lines:
        seen += [(line.rank, line.text) for line in page.lines]
        cursor = page.cursor
    assert len(seen) == 841 and len(set(seen)) == 841


def test_a_follower_at_the_end_sees_no_line_twice(job):
    cursor = reader.read(job=job, tail=5).cursor
    pack(job)
    assert reader.read(job=job, cursor=cursor).lines == []
    apply.apply_batch(identity=identity(job), batch=batch(BATCHES + 1, log_item(1, 400, [(T + 99, "1:400")])))
    assert [line.text for line in reader.read(job=job, cursor=cursor).lines] == ["1:400"]


def test_files_of_rows_read_before_packing_still_exist(job, files):
    rows = segments.unread(job=job.pk, source=EVERYBODY, place=Cursor(1), limit=500).segments
    pack(job)
    assert compaction.sweep(run=job.run, attempt=1, now=timezone.now()) == []
    assert sum(len(list(segments.content(row)[0])) for row in rows) == 840


def test_replaced_files_are_deleted_once_no_reader_can_need_them(job, files):
    pack(job)
    age(stored(files))
    assert len(compaction.sweep(run=job.run, attempt=1, now=timezone.now())) == BATCHES
    assert len(stored(files)) == 1 and len(everything(job)) == 841


@pytest.mark.parametrize("phase", ["running", "succeeded"])
def test_a_packed_log_takes_twice_its_space_for_minutes_only(job, files, phase):
    """It used to be a day, while the team was charged once."""
    Job.objects.filter(pk=job.pk).update(phase=phase, finished_at=timezone.now() if phase == "succeeded" else None)
    age(stored(files))  # written long ago, replaced just now: a reader may still hold the old rows
    pack(job)
    assert retention.sweep_recent(now=timezone.now()) == 0 and len(stored(files)) == BATCHES + 1
    assert retention.sweep_recent(now=timezone.now() + timedelta(minutes=11)) == BATCHES
    assert len(stored(files)) == 1 and len(everything(job)) == 841


def test_a_crash_before_the_rows_changed_loses_nothing(job, files):
    with transaction.atomic():
        pack(job)
        transaction.set_rollback(True)  # as if killed before the commit: no row names the new file
    assert len(everything(job)) == 841 and LogSegment.objects.filter(is_packed=True).count() == 0
    assert len(stored(files)) == BATCHES + 1
    assert pack(job) == 1 and len(everything(job)) == 841


def test_of_two_concurrent_packers_only_one_replaces_the_rows(job, files, monkeypatch):
    """The second packs everything just after the first has written its file."""
    packed: list[int] = []

    def save(name, content, real=default_storage.save):
        monkeypatch.undo()
        path = real(name, content)
        packed.append(pack(job))
        return path

    monkeypatch.setattr(default_storage, "save", save)
    assert pack(job) == 0 and packed == [1]
    assert len(everything(job)) == 841


def test_a_segment_that_cannot_be_read_is_not_packed(job, files):
    (path,) = files.rglob("worker-0-7-*.z")
    path.write_bytes(b"nonsense")
    pack(job)
    assert any("cannot be read" in text for _, text in everything(job))
    assert len(everything(job)) == 841 - 21 + 3


def test_a_large_log_is_packed_into_several_files_and_rows(job, files, monkeypatch):
    monkeypatch.setattr(compaction, "FILE_BYTES", 4000)
    monkeypatch.setattr(compaction, "SEGMENT_BYTES", 700)
    before = by_rank(everything(job))
    assert pack(job) > 3
    assert by_rank(everything(job)) == before
    assert max(row.raw_bytes for row in LogSegment.objects.exclude(path="")) <= 700


def test_only_finished_or_very_long_logs_wait_for_packing(job, lab, monkeypatch):
    soon, replica = timezone.now() + timedelta(minutes=5), Replica.objects.get(job=job, index=0).pk
    assert compaction.waiting(now=soon) == []
    monkeypatch.setattr(compaction, "EVERY", 100)
    assert compaction.waiting(now=soon) == [replica]
    monkeypatch.setattr(compaction, "EVERY", 200)
    lab.finish(job, 0, 0)
    assert compaction.waiting(now=timezone.now()) == [replica]
    assert compaction.pack_all() == 1 and compaction.waiting(now=soon) == []


class TestCollecting:
    @pytest.fixture
    def old(self, job, lab, settings, tmp_path):
        settings.CLUSTERS = {
            "local": {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": str(tmp_path / "local")}}
        }
        lab.finish(job, 0, 0)
        Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - timedelta(days=100))
        (tmp_path / "local/jobs" / job.run / "shared").mkdir(parents=True)
        (tmp_path / "local/jobs/999999-strange").mkdir()
        return job

    def test_a_dry_run_lists_everything_and_deletes_nothing(self, old, files, capsys):
        call_command("collect", "--dry-run")
        said = capsys.readouterr().out
        assert f"would delete log of {old.run}" in said and "would delete 1 logs, 1 folders" in said
        assert len(stored(files)) == BATCHES and len(everything(old)) == 841

    def test_old_logs_and_folders_are_deleted_and_readers_see_a_notice(self, old, files, tmp_path):
        retention.collect(now=timezone.now())
        assert stored(files) == [] and LogSegment.objects.count() == 0
        assert [path.name for path in (tmp_path / "local/jobs").iterdir()] == ["999999-strange"]
        page = reader.read(job=old)
        (line,) = page.lines
        assert line.is_gap and "logs are kept for 90 days" in line.text and page.is_complete
        assert reader.read(job=old, cursor=page.cursor).lines == []
        assert len(reader.read(job=old, tail=10).lines) == 1
        assert retention.collect(now=timezone.now()).logs == []

    def test_recent_logs_and_folders_are_kept(self, old, files):
        Job.objects.filter(pk=old.pk).update(finished_at=timezone.now() - timedelta(days=29))
        found = retention.collect(now=timezone.now())
        assert (found.logs, found.folders) == ([], []) and len(stored(files)) == BATCHES

    def test_stray_files_of_a_recent_job_are_deleted(self, old, files):
        Job.objects.filter(pk=old.pk).update(finished_at=timezone.now() - timedelta(hours=3))
        stray = files / f"logs/{old.run}/1/worker-0-99-00000000.z"
        stray.write_bytes(b"x")
        age([stray])
        assert retention.collect(now=timezone.now()).files == [f"logs/{old.run}/1/worker-0-99-00000000.z"]
