"""Logs and code of jobs in a bucket: ingest, reading, packing, sweeping, deletion, and a server that is away."""

import time
from datetime import timedelta

import pytest
from django.core.files.storage import default_storage
from django.utils import timezone

from jobs.ingest import apply
from jobs.logs import compaction, reader, retention, storage
from jobs.models import LogSegment
from tests.support import seed
from tests.support.builders import batch, identity, log_item
from workspaces import files, garbage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("in_bucket")]


def names(folder: str) -> set[str]:
    folders, found = default_storage.listdir(folder)
    return {f"{folder}/{name}" for name in found}.union(*(names(f"{folder}/{one}") for one in folders))


def text(job) -> list[str]:
    return reader.last_lines(job=job, attempt=1, rank=0, count=10_000)


def test_a_log_is_stored_read_packed_and_deleted(lab):
    job = lab.running(nodes=1, nproc_per_node=1)
    now = time.time()
    for number in range(30):
        item = log_item(0, number, [(now + number / 10, f"line {number}")])
        apply.apply_batch(identity=identity(job), batch=batch(number + 1, item))
    lines = text(job)
    assert lines[-1] == "line 29"
    before = names("logs")
    assert len(before) == 30
    lab.finish(job, 0)
    assert compaction.pack(job.replicas.get().pk) == 1
    assert text(job) == lines
    assert LogSegment.objects.filter(job=job, is_packed=True).count() == 1
    assert compaction.sweep(run=job.run, attempt=1, now=timezone.now()) == []  # somebody may be reading them
    swept = compaction.sweep(run=job.run, attempt=1, now=timezone.now() + timedelta(minutes=11))
    assert set(swept) == before
    assert text(job) == lines
    retention.delete_log(job=job, by=None)
    assert names("logs") == set()


def test_a_store_that_is_away_makes_agents_keep_their_lines(lab, server):
    job = lab.running(nodes=1, nproc_per_node=1)
    item = log_item(0, 0, [(time.time(), "kept by its agent meanwhile")])
    server.process.kill()
    try:
        with pytest.raises(storage.NoRoom) as refused:
            apply.apply_batch(identity=identity(job), batch=batch(1, item))
        assert refused.value.is_patient
    finally:
        server.start()
    assert apply.apply_batch(identity=identity(job), batch=batch(1, item))[0] == 1
    assert text(job) == ["kept by its agent meanwhile"]


def test_lines_that_cannot_be_read_are_said_so_and_come_back(lab, server):
    job = seed.failed(lab, name="failed")
    server.process.kill()
    try:
        assert any("cannot be read" in line for line in text(job))
    finally:
        server.start()
    assert not any("cannot be read" in line for line in text(job))


def test_garbage_is_found_in_a_bucket(lab):
    from io import BytesIO

    name = files.save(lab.queue.team_id, "pack", BytesIO(b"of no row"))
    assert [found for found, _ in files.listed()] == [name]
    assert garbage.delete_unnamed(before=timezone.now() - timedelta(days=1)) == 0
    assert garbage.delete_unnamed(before=timezone.now() + timedelta(minutes=1)) == 1
    assert list(files.listed()) == []
