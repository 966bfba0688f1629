"""Files in a bucket behave as in a folder, as far as Muster uses them; errors are those of a folder too."""

import tempfile
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile, File

from common import addresses
from common.files import file_store
from common.files.file_store import MovingStorage, folder_of, made, probe, read_slice, touch
from rig import objects


@pytest.fixture(params=["bucket", "folder"])
def files(request, settings, tmp_path):
    """Both, so that each test also says what a folder does."""
    settings.MEDIA_ROOT = tmp_path
    return request.getfixturevalue("store") if request.param == "bucket" else made(addresses.files(""))


def test_what_is_written_is_read_whole_and_in_part(files):
    data = bytes(range(256)) * 100
    assert files.save("logs/1-a/1/x.z", ContentFile(data)) == "logs/1-a/1/x.z"
    with files.open("logs/1-a/1/x.z", "rb") as file:
        assert (file.read(), file.size) == (data, len(data))
    assert read_slice(files, "logs/1-a/1/x.z", offset=300, size_bytes=7) == data[300:307]
    assert read_slice(files, "logs/1-a/1/x.z", offset=len(data) - 2, size_bytes=100) == data[-2:]
    assert read_slice(files, "logs/1-a/1/x.z", offset=5, size_bytes=0) == b""
    assert files.size("logs/1-a/1/x.z") == len(data)


def test_a_name_that_exists_is_replaced(files):
    files.save("a", ContentFile(b"1"))
    assert files.save("a", ContentFile(b"22")) == "a"
    assert read_slice(files, "a", offset=0, size_bytes=9) == b"22"


def test_folders_are_listed(files):
    for name in ("logs/1-a/1/x", "logs/1-a/1/y", "logs/1-a/2/x", "logs/2-b/1/x"):
        files.save(name, ContentFile(b"x"))
    folders, names = files.listdir("logs/1-a/1")
    assert (folders, sorted(names)) == ([], ["x", "y"])
    assert sorted(files.listdir("logs")[0]) == ["1-a", "2-b"]
    assert files.exists("logs/1-a")
    assert files.exists("logs/1-a/1/x")
    assert not files.exists("logs/1-a/1/z")


def test_deleted_is_gone_and_again_is_no_error(files):
    files.save("a/b", ContentFile(b"1"))
    files.delete("a/b")
    files.delete("a/b")
    assert not files.exists("a/b")


@pytest.mark.parametrize(
    "ask",
    [
        lambda files: files.open("absent", "rb").read(),
        lambda files: read_slice(files, "absent", offset=0, size_bytes=1),
        lambda files: files.size("absent"),
        lambda files: files.get_modified_time("absent"),
        lambda files: touch(files, "absent"),
    ],
)
def test_what_is_not_there_is_said_to_be_missing(files, ask):
    with pytest.raises(FileNotFoundError):
        ask(files)


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/absolute"])
def test_names_cannot_lead_outside(store, name):
    with pytest.raises(SuspiciousFileOperation):
        store.save(name, ContentFile(b"x"))
    with pytest.raises(SuspiciousFileOperation):
        store.open(name, "rb")


def test_touching_makes_a_file_new(files):
    files.save("a", ContentFile(b"1"))
    before = files.get_modified_time("a")
    assert before > datetime.now(UTC) - timedelta(minutes=5)
    while files.get_modified_time("a").replace(microsecond=0) == before.replace(microsecond=0):
        time.sleep(0.2)
        touch(files, "a")
    assert read_slice(files, "a", offset=0, size_bytes=9) == b"1"


def test_files_larger_than_memory_go_through_a_temporary_file(store):
    with tempfile.TemporaryFile() as large:
        large.write(b"muster" * 2**20 * 12)  # several parts
        large.seek(0)
        store.save("large", File(large))
        assert large.read(1) == b""  # the caller's file is still open
    with store.open("large", "rb") as file:
        file.seek(-6, 2)
        assert file.read() == b"muster"
    assert store.size("large") == 12 * 6 * 2**20


def test_many_files_are_listed_by_pages(store, server, address):
    bucket = address.partition("@")[2].partition("/")[0]
    folder = server.files / bucket / "muster/files/many"
    folder.mkdir(parents=True)
    for number in range(1203):
        (folder / str(number)).write_bytes(b"x")
    assert sorted(map(int, store.listdir("many")[1])) == list(range(1203))


def test_errors_tell_what_the_server_said(server, tmp_path):
    wrong = made(addresses.files(server.address("b-1").replace(server.access_key, "nobody", 1)))
    with pytest.raises(OSError, match="bucket b-1: "):
        wrong.save("a", ContentFile(b"x"))
    absent = made(addresses.files(server.address("b-1").replace("@b-1", "@no-such-bucket")))
    with pytest.raises(OSError, match="bucket no-such-bucket: "):
        absent.save("a", ContentFile(b"x"))
    with pytest.raises(OSError, match="bucket"):
        probe(absent)


def test_a_server_that_is_away_is_an_error_and_comes_back(tmp_path):
    with objects.running(tmp_path) as own:
        store = made(addresses.files(own.address("b-1")))
        store.save("a", ContentFile(b"x"))
        own.process.kill()
        with pytest.raises(OSError, match="bucket b-1") as caught:
            store.save("b", ContentFile(b"x"))
        assert not isinstance(caught.value, FileNotFoundError)
        own.start()
        store.save("b", ContentFile(b"x"))
        assert store.exists("a") and store.exists("b")


def test_while_files_move_both_places_are_one(server, address, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    new, old = addresses.files(address), addresses.files("")
    both = MovingStorage(new=new, old=old)
    made(old).save("logs/a", ContentFile(b"old"))
    both.save("logs/b", ContentFile(b"new"))
    assert made(new).exists("logs/b") and not made(old).exists("logs/b")
    assert read_slice(both, "logs/a", offset=0, size_bytes=9) == b"old"
    assert both.open("logs/b", "rb").read() == b"new"
    assert both.listdir("logs") == ([], ["a", "b"])
    assert both.size("logs/a") == 3
    touch(both, "logs/a")
    both.delete("logs/a")
    both.delete("logs/b")
    assert not both.exists("logs/a") and not both.exists("logs/b")
    with pytest.raises(FileNotFoundError):
        both.open("logs/a", "rb")


def test_only_a_folder_has_one(store, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    assert folder_of(store) == ""
    assert folder_of(made(addresses.files(""))) == str(tmp_path)
    probe(store)
    assert store.listdir("check") == ([], [])
    file_store.probe(made(addresses.files("")))
