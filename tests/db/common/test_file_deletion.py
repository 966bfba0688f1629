"""Files stay while a backup runs, and a backup waits for whoever deletes files."""

import threading
from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone

from common.files import file_deletion
from jobs.logs import retention
from jobs.models import LogSegment
from tests.support import seed
from workspaces import files, garbage

pytestmark = pytest.mark.django_db(transaction=True)


def refuse(words: str) -> None:
    raise AssertionError(words)


def test_those_who_delete_do_not_wait_for_each_other():
    with file_deletion.allowed() as first, file_deletion.allowed() as second:
        assert first and second


def test_a_backup_waits_for_those_who_delete():
    said, began = [], threading.Event()

    def back_up():
        with file_deletion.paused(say=said.append):
            began.set()

    with file_deletion.allowed():
        thread = threading.Thread(target=back_up)
        thread.start()
        while not said:
            began.wait(0.05)
        assert not began.is_set()
    thread.join()
    assert began.is_set()


def test_nothing_is_deleted_during_a_backup(lab, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    job = seed.failed(lab)
    default_storage.save("workspaces/1/unnamed.pack", ContentFile(b"x"))
    stored = {path for path in tmp_path.rglob("*") if path.is_file()}
    later = timezone.now() + timedelta(days=3650)
    with file_deletion.paused(say=refuse):
        assert retention.collect(now=later).logs == []
        assert retention.sweep_recent(now=later) == 0
        assert garbage.collect(now=later).stored_files == 0
        retention.delete_log(job=job, by=None)
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == stored
    assert not LogSegment.objects.filter(job=job).exists()
    retention.collect(now=timezone.now() + timedelta(minutes=11))
    garbage.collect(now=later)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert list(files.named()) == []
