"""Garbage collection while clients upload: nothing that is still needed is deleted."""

import io
import random
import threading
from datetime import timedelta

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from jobs.models import Job
from tests.support import packs
from tests.support.locks import in_thread, until_waiting
from tests.support.patience import PATIENCE_SECONDS
from workspaces import files, garbage, manifest, reading, sent, services
from workspaces.models import Blob, Pack, Workspace

LATER = timedelta(days=365)


@pytest.fixture(autouse=True)
def root(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


@pytest.fixture
def send(people, team):
    def make(**tree: bytes) -> Workspace:
        services.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(*tree.values(), kind=packs.RAW)))
        put = sent.entries([packs.file(path, content) for path, content in tree.items()])
        return services.create(team=team, by=people.owner, put=put)[0]

    return make


def age(days: float) -> None:
    """Make everything look as if it were that many days old."""
    then = timezone.now() - timedelta(days=days)
    Workspace.objects.update(used_at=then)
    Blob.objects.update(used_at=then)
    Pack.objects.update(created_at=then)


def tree_of(workspace: Workspace) -> dict[str, bytes]:
    return {one.path: reading.content(workspace, one) for one in reading.entries(workspace)}


@pytest.mark.django_db
def test_an_unused_workspace_is_deleted_after_a_week_with_its_own_files(send, lab, root):
    unused, used = send(a=b"only here", b=b"in both"), send(b=b"in both")
    Job.objects.filter(pk=lab.submit().pk).update(workspace=used)
    age(6)
    assert garbage.collect().workspaces == 0
    age(8)
    found = garbage.collect()
    assert (found.workspaces, found.blobs) == (1, 1)
    assert list(Workspace.objects.all()) == [used]
    assert tree_of(used) == {"b": b"in both"}
    assert not Workspace.objects.filter(pk=unused.pk).exists()


@pytest.mark.django_db
def test_a_workspace_that_is_uploaded_again_stays(send):
    send(a=b"1")
    age(8)
    kept = send(a=b"1")
    assert garbage.collect().workspaces == 0
    assert tree_of(kept) == {"a": b"1"}


@pytest.mark.django_db
def test_files_without_a_manifest_stay_for_a_day(people, team):
    services.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(b"waiting")))
    assert garbage.collect().blobs == 0
    age(2)
    assert garbage.collect().blobs == 1
    assert Pack.objects.count() == 0


@pytest.mark.django_db
def test_a_mostly_dead_pack_is_rewritten_and_its_live_files_stay_readable(send, lab):
    small = send(small=b"s" * 100)
    both = send(small=b"s" * 100, large=b"x" * 1000)
    Job.objects.filter(pk=lab.submit().pk).update(workspace=small)
    one_pack = send(keep=b"k" * 300, drop=b"d" * 5000)
    kept = send(keep=b"k" * 300)
    Job.objects.filter(pk=lab.submit().pk).update(workspace=kept)
    before = set(Pack.objects.values_list("name", flat=True))
    age(8)
    found = garbage.collect()
    assert {both.pk, one_pack.pk}.isdisjoint(Workspace.objects.values_list("pk", flat=True))
    assert (found.blobs, found.packs) == (2, 2)
    assert (tree_of(small), tree_of(kept)) == ({"small": b"s" * 100}, {"keep": b"k" * 300})
    after = set(Pack.objects.values_list("name", flat=True))
    assert len(after) == 2 and len(after - before) == 1
    assert sum(Pack.objects.values_list("size_bytes", flat=True)) == sum(
        len(packs.pack(one, kind=packs.RAW)) for one in (b"s" * 100, b"k" * 300)
    )


@pytest.mark.django_db
def test_a_reader_with_the_old_location_still_finds_the_file(send, lab):
    kept = send(keep=b"k" * 300, drop=b"d" * 5000)
    asked = reading.pack(kept, [packs.sha(b"k" * 300)])
    Job.objects.filter(pk=lab.submit().pk).update(workspace=send(keep=b"k" * 300))
    age(8)
    assert garbage.collect().packs == 1
    assert packs.unpacked(b"".join(asked)) == ({packs.sha(b"k" * 300): b"k" * 300}, {})


@pytest.mark.django_db
def test_a_stored_file_that_no_row_names_is_deleted_after_a_day(send, root):
    kept = send(a=b"1")
    files.save_packed(kept.team_id, b"left by a process that was killed")
    (root / "workspaces" / "old.tar.gz").write_bytes(b"of an older release")
    assert garbage.collect().stored_files == 0
    assert garbage.delete_unnamed(before=timezone.now() + timedelta(seconds=5)) == 2
    assert tree_of(kept) == {"a": b"1"}


@pytest.mark.django_db
def test_an_unreadable_manifest_aborts_the_sweep(send, lab):
    broken = send(a=b"1")
    Job.objects.filter(pk=lab.submit().pk).update(workspace=broken)
    files.delete(broken.manifest)
    age(8)
    with pytest.raises(FileNotFoundError):
        garbage.collect()
    assert Blob.objects.count() == 1


@pytest.mark.django_db
def test_a_damaged_pack_is_left_unchanged(send, lab, root):
    Job.objects.filter(pk=lab.submit().pk).update(workspace=send(keep=b"k" * 300))
    pack = Pack.objects.get()
    (root / pack.name).write_bytes((root / pack.name).read_bytes().replace(b"kkk", b"kxk"))
    Pack.objects.update(size_bytes=pack.size_bytes * 10)  # so that it looks mostly dead
    age(8)
    assert garbage.collect().packs == 0
    assert Pack.objects.get().pk == pack.pk


@pytest.mark.django_db
def test_the_command_prints_what_it_removed(send, capsys):
    send(a=b"1")
    age(8)
    call_command("collect_garbage")
    assert capsys.readouterr().out.startswith("removed 1 workspaces and 1 files of them")


def test_beat_collects_once_a_day():
    from controlplane.celery import app

    app.loader.import_default_modules()
    (entry,) = [one for one in settings.CELERY_BEAT_SCHEDULE.values() if one["task"] == "workspaces.collect_garbage"]
    assert entry["schedule"] == 86400.0
    assert entry["task"] in app.tasks


# -- during concurrent uploads


@pytest.mark.django_db(transaction=True)
def test_a_file_referenced_between_mark_and_sweep_stays(people, team):
    services.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(b"reused")))
    age(30)
    put = sent.entries([packs.file("a", b"reused")])
    swept: list[int] = []
    with transaction.atomic():
        services.lock_store(team)
        collector = in_thread(lambda: swept.append(garbage.sweep(team, before=timezone.now() + LATER)))
        until_waiting()  # it has marked, and waits to sweep
        made, _ = services.create(team=team, by=people.owner, put=put)
    collector.join(PATIENCE_SECONDS)
    assert swept == [0]
    assert tree_of(made) == {"a": b"reused"}


@pytest.mark.django_db(transaction=True)
def test_a_manifest_after_the_sweep_is_answered_with_the_missing_files(people, team):
    services.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(b"swept")))
    assert services.missing(team=team, by=people.owner, digests=[packs.sha(b"swept")]) == []
    assert garbage.sweep(team, before=timezone.now() + LATER) == 1
    with pytest.raises(services.MissingFiles) as caught:
        services.create(team=team, by=people.owner, put=sent.entries([packs.file("a", b"swept")]))
    assert caught.value.digests == [packs.sha(b"swept")]


@pytest.mark.django_db(transaction=True)
def test_a_base_that_is_collected_meanwhile_is_refused(people, team, send):
    base = send(a=b"1")
    put = sent.entries([packs.file("b", b"2")])
    services.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(b"2")))
    refused: list[Exception] = []

    def create() -> None:
        try:
            services.create(team=team, by=people.owner, put=put, base=base.pk)
        except Exception as error:
            refused.append(error)

    with transaction.atomic():
        services.lock_store(team)
        sender = in_thread(create)
        until_waiting()  # it has read the base, and waits to write
        Workspace.objects.filter(pk=base.pk).delete()
    sender.join(PATIENCE_SECONDS)
    assert [error.problems[0].field for error in refused] == ["base"]
    assert Workspace.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_a_job_that_is_being_submitted_keeps_its_workspace(people, team, send, lab):
    kept = send(a=b"1")
    age(8)
    with transaction.atomic():
        services.hold(kept)
        collector = in_thread(lambda: garbage.expire(team, before=timezone.now() - timedelta(days=7)))
        collector.join(PATIENCE_SECONDS)
        assert not collector.is_alive()
    assert Workspace.objects.filter(pk=kept.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_submitting_with_a_deleted_workspace_is_refused(lab, send, people, queue):
    from common.errors import InvalidInput
    from jobs import services as job_services

    gone = send(a=b"1")
    Workspace.objects.filter(pk=gone.pk).delete()
    sent_ = {"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 1}
    with pytest.raises(InvalidInput, match="upload the code again"):
        job_services.submit(user=people.owner, queue=queue, sent=sent_, workspace=gone)
    assert Job.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_concurrent_uploads_stay_readable_while_the_collector_runs(people, team):
    """There is no grace period here. Everything that was accepted can be read completely."""
    contents = [bytes([65 + number]) * 50 * number for number in range(1, 9)]
    made: list[tuple[Workspace, dict[str, bytes]]] = []
    stop = threading.Event()
    troubles: list[BaseException] = []

    def collect() -> None:
        while not stop.is_set():
            try:
                garbage.sweep(team, before=timezone.now() + LATER)
                garbage.renew(team, before=timezone.now() + LATER)
            except BaseException as error:
                troubles.append(error)
                raise

    def submit(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(15):
            tree = {f"f{number}": content for number, content in enumerate(chance.sample(contents, 3))}
            put = sent.entries([packs.file(path, content) for path, content in tree.items()])
            for _ in range(200):
                try:
                    made.append((services.create(team=team, by=people.owner, put=put)[0], tree))
                    break
                except services.MissingFiles as missing:
                    wanted = [content for content in contents if packs.sha(content) in missing.digests]
                    services.receive(team=team, by=people.owner, stream=io.BytesIO(packs.pack(*wanted)))
            if chance.random() < 0.6:
                Workspace.objects.filter(pk=made[-1][0].pk).delete()

    collector = in_thread(collect)
    senders = [in_thread(lambda seed=seed: submit(seed)) for seed in range(3)]
    for sender in senders:
        sender.join(PATIENCE_SECONDS)
    stop.set()
    collector.join(PATIENCE_SECONDS)
    assert troubles == []
    assert len(made) == 45
    alive = set(Workspace.objects.values_list("pk", flat=True))
    read = [(tree_of(workspace), tree) for workspace, tree in made if workspace.pk in alive]
    assert read and all(found == tree for found, tree in read)
    assert all(manifest.size_of(reading.entries(one)) == one.size_bytes for one in Workspace.objects.all())
