"""A log file system that is really full: the job goes on, agents keep their text, and lost lines are noted."""

import os
import subprocess
import time

import pytest

from jobs.ingest import apply
from jobs.ingest.handler import answer
from jobs.logs import reader, storage
from jobs.models import JobEvent, LogSegment, Rank, Replica
from tests.db.ingest.test_agent_door import body
from tests.support.builders import batch, identity, item, log_item
from tests.support.machine import need

pytestmark = pytest.mark.django_db
T = float(int(time.time()) - 60)


@pytest.fixture
def small_disk(tmp_path):
    need(os.geteuid() == 0, "mounting a small file system needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.fixture
def full_disk(small_disk, settings, monkeypatch):
    settings.MEDIA_ROOT = small_disk
    monkeypatch.setattr(storage, "refusals", storage.Refusals())
    (small_disk / "ballast").write_bytes(b"x" * 200_000)
    return small_disk


def noise(rank: int, first: int):
    """80 kB that cannot be compressed."""
    return log_item(rank, first, [(T + n, os.urandom(40_000).hex()) for n in range(2)])


@pytest.fixture
def job(lab):
    return lab.running()


def test_a_full_store_makes_agents_keep_their_text_and_leaves_no_partial_file(job, full_disk):
    said = answer(identity(job), body(noise(0, 0)))
    assert said.status == 507 and int(said.headers["Retry-After"]) >= 1
    assert "No space left on device" in said.content["title"]
    assert Replica.objects.get(job=job, index=0).batch_seq == 0 and LogSegment.objects.count() == 0
    assert [path.name for path in full_disk.rglob("*") if path.is_file()] == ["ballast"]


def test_batches_without_text_are_still_accepted(job, full_disk):
    assert answer(identity(job), body(noise(0, 0))).status == 507
    state = item("rank", rank=2, local_rank=0, pid=7, state="running", at=T)
    assert answer(identity(job, 1), body(state)).status == 200
    assert Rank.objects.get(job=job, rank=2).state == "running"


def test_text_is_accepted_again_once_there_is_room(job, full_disk):
    sent = body(noise(0, 0))
    assert answer(identity(job), sent).status == 507
    (full_disk / "ballast").unlink()
    assert answer(identity(job), sent).status == 200
    assert [line.is_gap for line in reader.read(job=job).lines] == [False, False]


def test_after_a_while_states_are_accepted_without_text_and_the_gap_is_noted_once(job, full_disk, monkeypatch):
    monkeypatch.setattr(storage, "PATIENCE_SECONDS", 0.0)
    state = item("rank", rank=0, local_rank=0, state="failed", exit_code=1, at=T)
    for seq in (1, 2):
        apply.apply_batch(identity=identity(job), batch=batch(seq, noise(0, 2 * (seq - 1)), state))
    assert Rank.objects.get(job=job, rank=0).state == "failed"
    assert [line.is_gap for line in reader.read(job=job).lines] == [True, True]
    (note,) = JobEvent.objects.filter(job=job, kind="note")
    assert note.message == "Log lines are missing: the log store takes nothing: No space left on device"
    (full_disk / "ballast").unlink()
    apply.apply_batch(identity=identity(job), batch=batch(3, noise(0, 4)))
    assert [line.is_gap for line in reader.read(job=job, tail=2).lines] == [False, False]


def test_small_batches_of_one_replica_do_not_block_large_ones_of_another_forever(job, full_disk, monkeypatch):
    """A nearly full disk still takes small batches. The text of large ones is given up after a while, with a note."""
    large, small = body(noise(0, 0)), lambda seq: body(log_item(2, seq, [(T, "little")]), seq=seq + 1)
    assert answer(identity(job), large).status == 507
    assert answer(identity(job, 1), small(0)).status == 200
    monkeypatch.setattr(storage, "PATIENCE_SECONDS", 0.0)
    assert answer(identity(job), large).status == 200
    assert [note.message[:22] for note in JobEvent.objects.filter(job=job, kind="note")] == ["Log lines are missing:"]
