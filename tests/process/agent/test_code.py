"""Delivery of a job's code from the control plane into code/, and what must never happen on the way."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.code import workspace
from agent.code.cache import Cache, Unusable
from agent.wire import manifest, pack
from tests.process.agent.bench import Bench
from tests.support import packs
from tests.support.fake_control_plane import FakeControlPlane, listed
from tests.support.patience import PATIENCE_SECONDS

CODE: dict[str, bytes | str] = {
    "run.sh": b"#!/bin/sh\ncat lib/words.txt link/words.txt\n",
    "lib/words.txt": b"hello\n",
    "again.txt": b"hello\n",
    "link": "lib",
    "lib/up": "../run.sh",
}


@pytest.fixture(autouse=True)
def with_code(control_plane: FakeControlPlane) -> None:
    control_plane.code = dict(CODE)


def never() -> bool:
    return False


def cache_of(bench: Bench) -> Path:
    return bench.root / "cache"


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != "lock")


# -- from the control plane into code//


@pytest.mark.parametrize("has_cache", [True, False])
def test_the_code_keeps_links_and_execute_bits_and_is_the_working_directory(
    bench: Bench, control_plane: FakeControlPlane, has_cache: bool
) -> None:
    cache = {"cache": str(cache_of(bench))} if has_cache else {}
    folder = bench.replica(["./run.sh"], wants_workspace=True, **cache)
    assert bench.start(folder).wait(PATIENCE_SECONDS) == 0
    assert control_plane.of().texts() == ["hello", "hello"]
    code = folder / "code"
    assert (os.readlink(code / "link"), os.readlink(code / "lib" / "up")) == ("lib", "../run.sh")
    assert (code / "run.sh").stat().st_mode & 0o111 == 0o111
    assert (code / "again.txt").stat().st_mode & 0o111 == 0
    assert sorted(control_plane.given) == sorted({packs.sha(CODE["run.sh"]), packs.sha(b"hello\n")})
    assert not (folder / "blobs").exists()


def test_replicas_of_one_machine_fetch_a_file_once(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.slowness = 0.3
    agents = [
        bench.start(bench.replica(["./run.sh"], index=index, wants_workspace=True, cache=str(cache_of(bench))))
        for index in range(4)
    ]
    assert [agent.wait(PATIENCE_SECONDS) for agent in agents] == [0, 0, 0, 0]
    assert sorted(control_plane.given) == sorted({packs.sha(CODE["run.sh"]), packs.sha(b"hello\n")})
    assert all(control_plane.of(f"worker-{index}").texts() == ["hello", "hello"] for index in range(4))


def test_a_change_of_one_file_fetches_only_that_file(bench: Bench, control_plane: FakeControlPlane) -> None:
    bench.start(bench.replica(["true"], wants_workspace=True, cache=str(cache_of(bench)))).wait(PATIENCE_SECONDS)
    control_plane.given.clear()
    assert control_plane.code is not None
    control_plane.code["lib/words.txt"] = b"changed\n"
    folder = bench.replica(["./run.sh"], index=1, wants_workspace=True, cache=str(cache_of(bench)))
    bench.start(folder).wait(PATIENCE_SECONDS)
    assert control_plane.given == [packs.sha(b"changed\n")]
    assert control_plane.of("worker-1").texts() == ["changed", "changed"]


def test_what_a_job_writes_into_its_code_does_not_reach_the_next(bench: Bench, control_plane: FakeControlPlane) -> None:
    for index in range(2):
        command = ["sh", "-c", "cat again.txt; echo spoilt > again.txt; chmod 777 run.sh"]
        bench.start(bench.replica(command, index=index, wants_workspace=True, cache=str(cache_of(bench)))).wait(
            PATIENCE_SECONDS
        )
        assert control_plane.of(f"worker-{index}").texts() == ["hello"]


def test_a_modified_file_in_the_cache_is_fetched_again(bench: Bench, control_plane: FakeControlPlane) -> None:
    bench.start(bench.replica(["true"], wants_workspace=True, cache=str(cache_of(bench)))).wait(PATIENCE_SECONDS)
    digest = packs.sha(b"hello\n")
    (cache_of(bench) / "7" / digest[:2] / digest).write_text("HELLO\n")
    control_plane.given.clear()
    bench.start(bench.replica(["./run.sh"], index=1, wants_workspace=True, cache=str(cache_of(bench)))).wait(
        PATIENCE_SECONDS
    )
    assert control_plane.given == [digest]
    assert control_plane.of("worker-1").texts() == ["hello", "hello"]


def long_link(place: Path) -> None:
    place.symlink_to("x" * 300)


@pytest.mark.parametrize(
    "put", [os.mkfifo, os.mkdir, lambda place: place.symlink_to("/dev/zero"), lambda place: place.write_text("x" * 99), long_link]
)  # fmt: skip
@pytest.mark.parametrize("name", ["file", "folder", "lock"])
def test_anything_a_job_put_into_the_cache_does_not_stop_the_next_job(
    bench: Bench, control_plane: FakeControlPlane, name: str, put: Callable[[Path], None]
) -> None:
    """Regression: a link to /dev/zero filled the disk, and a pipe blocked every later job, also of other teams."""
    bench.start(bench.replica(["true"], wants_workspace=True, cache=str(cache_of(bench)))).wait(PATIENCE_SECONDS)
    team = cache_of(bench) / "7"
    digest = hashlib.sha256(b"hello\n").hexdigest()
    places = {"file": team / digest[:2] / digest, "folder": team / digest[:2], "lock": team / "lock"}
    for place in {places[name], *([places["file"]] if name == "lock" else [])}:
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    put(places[name])
    bench.start(bench.replica(["./run.sh"], index=1, wants_workspace=True, cache=str(cache_of(bench)))).wait(
        PATIENCE_SECONDS
    )
    assert bench.status(1)["state"] == "succeeded", bench.status(1)


def test_waiting_for_a_lock_that_is_never_released_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.code.cache.LOCK_SECONDS", 0.1)
    cache = Cache(str(tmp_path), limit_bytes=1 << 30)
    with cache.lock(is_cancelled=never):
        with pytest.raises(Unusable, match="another process held"), cache.lock(is_cancelled=never):
            pass


def test_an_unusable_cache_is_skipped(bench: Bench, control_plane: FakeControlPlane) -> None:
    cache_of(bench).write_text("a file where the folder should be")
    bench.start(bench.replica(["./run.sh"], wants_workspace=True, cache=str(cache_of(bench)))).wait(PATIENCE_SECONDS)
    assert control_plane.of().texts() == ["hello", "hello"]


def test_a_job_without_code_has_an_empty_folder(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.code = None
    bench.start(bench.replica(["ls"], wants_workspace=True)).wait(PATIENCE_SECONDS)
    assert (control_plane.of().texts(), bench.status()["state"]) == ([], "succeeded")


def test_code_left_half_written_by_an_earlier_agent_is_replaced(bench: Bench, control_plane: FakeControlPlane) -> None:
    folder = bench.replica(["./run.sh"], wants_workspace=True, files={"again.txt": "half", "stale.txt": "left"})
    (folder / "code" / "lib").symlink_to("/tmp")
    bench.start(folder).wait(PATIENCE_SECONDS)
    assert control_plane.of().texts() == ["hello", "hello"]
    assert not (folder / "code" / "stale.txt").exists()


# -- errors


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def once(spoil: object) -> object:
    left = [1]

    def act(data: bytes) -> bytes:
        left[0] -= 1
        return spoil(data) if left[0] >= 0 else data  # type: ignore[operator]

    return act


def spoilt(data: bytes) -> bytes:
    """Return a pack in which no content matches its digest; the lengths are right."""
    found = packs.unpacked(data)[0]
    return (
        b"MUSTERP1"
        + b"".join(packs.frame(b"x" * len(one), digest=name) for name, one in found.items())
        + packs.end(len(found))
    )


@pytest.mark.parametrize("spoil", [cut, spoilt, lambda data: b"", lambda data: b"<html>a proxy's words</html>" * 9])
def test_an_incomplete_or_damaged_response_is_requested_again(
    bench: Bench, control_plane: FakeControlPlane, spoil: object
) -> None:
    control_plane.spoil = once(spoil)  # type: ignore[assignment]
    bench.start(bench.replica(["./run.sh"], wants_workspace=True, cache=str(cache_of(bench)))).wait(PATIENCE_SECONDS)
    assert control_plane.of().texts() == ["hello", "hello"]


def test_files_received_before_a_break_are_not_fetched_again(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.spoil = once(lambda data: data[:-60])  # type: ignore[assignment]
    bench.start(bench.replica(["./run.sh"], wants_workspace=True, cache=str(cache_of(bench)))).wait(PATIENCE_SECONDS)
    assert control_plane.of().texts() == ["hello", "hello"]
    assert len(control_plane.given) == 3  # two requests, then the second once more


def lost(data: bytes) -> bytes:
    digest = next(iter(packs.unpacked(data)[0]))
    return (
        b"MUSTERP1"
        + packs.frame(b"", kind=packs.LOST, digest=digest, packed=b"cannot be read from the store")
        + packs.end(1)
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(lost, "cannot be read from the store"), (spoilt, "arrived damaged, 3 times")],
)
def test_a_file_that_cannot_be_fetched_fails_the_replica_with_a_reason(
    bench: Bench, control_plane: FakeControlPlane, spoil: object, words: str
) -> None:
    control_plane.spoil = spoil  # type: ignore[assignment]
    bench.start(bench.replica(["./run.sh"], wants_workspace=True, cache=str(cache_of(bench)))).wait(PATIENCE_SECONDS)
    status = bench.status()
    assert status["state"] == "failed"
    assert status["reason"].startswith("the workspace cannot be fetched: ") and words in status["reason"]
    assert [name for name in files_in(cache_of(bench)) if name.startswith("part-")] == []


def test_deleted_code_fails_the_replica_with_the_servers_message(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.refuse = 410
    agent = bench.start(bench.replica(["true"], wants_workspace=True), MUSTER_DRAIN_SECONDS="0.2")
    agent.wait(PATIENCE_SECONDS)
    assert bench.status()["reason"] == "the workspace cannot be fetched: so it was told to"


def test_an_unavailable_control_plane_is_waited_for(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.refuse = 503
    agent = bench.start(bench.replica(["./run.sh"], wants_workspace=True))
    bench.wait_for(lambda: "answered 503" in (bench.attempt / "worker-0" / "agent.log").read_text())
    control_plane.refuse = 0
    assert agent.wait(PATIENCE_SECONDS) == 0
    assert control_plane.of().texts() == ["hello", "hello"]


def test_a_control_plane_that_never_answered_is_given_up_naming_its_address(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    """Only with give_up_seconds: the address given to a pod is more often wrong than temporarily unreachable."""
    control_plane.down()
    words = bench.root / "last-words"
    replica = bench.replica(["./run.sh"], wants_workspace=True, give_up_seconds=5, last_words=str(words))
    assert bench.start(replica).wait(PATIENCE_SECONDS) == 78
    said = f"the workspace cannot be fetched: no answer from {control_plane.url}: ConnectionRefusedError"
    assert words.read_text().startswith(said) and bench.status()["reason"] == words.read_text()


def test_a_control_plane_that_answered_once_is_not_given_up(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.refuse = 503
    agent = bench.start(bench.replica(["./run.sh"], wants_workspace=True, give_up_seconds=5))
    log = bench.attempt / "worker-0" / "agent.log"
    bench.wait_for(
        lambda: log.read_text().count("answered 503") >= 7
    )  # with growing pauses: longer than give_up_seconds
    control_plane.refuse = 0
    assert agent.wait(PATIENCE_SECONDS) == 0


def test_a_stop_takes_effect_while_another_replica_fetches(bench: Bench, control_plane: FakeControlPlane) -> None:
    """The other replica holds the lock of the cache and does not finish."""
    cache = Cache(str(cache_of(bench) / "7"), limit_bytes=1 << 30)
    with cache.lock(is_cancelled=never) as is_held:
        assert is_held
        agent = bench.start(
            bench.replica(["true"], wants_workspace=True, cache=str(cache_of(bench))), MUSTER_DRAIN_SECONDS="0.1"
        )
        bench.wait_for(lambda: bench.status().get("state") == "starting")
        time.sleep(0.3)
        agent.terminate()
        agent.wait(PATIENCE_SECONDS)
    assert bench.status()["reason"] == "stopped on request"


# -- hostile manifests

FINE = packs.sha(b"")


def lay_out(text: str, *, cache: Cache, into: str) -> None:
    entries = manifest.read(text)
    workspace.unpack(entries, cache=cache, into=into)
    workspace.link(entries, into=into)


@pytest.mark.parametrize(
    "lines",
    [
        f"f\t0\t{FINE}\t/etc/evil\n",
        f"f\t0\t{FINE}\t../evil\n",
        f"f\t0\t{FINE}\ta/../../evil\n",
        f"f\t0\t{FINE}\ta//evil\n",
        f"f\t0\t{FINE}\t\n",
        f"f\t0\t{FINE}\te\0vil\n",
        f"f\t0\t{FINE}\ta\nf\t0\t{FINE}\ta\n",
        f"f\t0\t{FINE}\ta\nf\t0\t{FINE}\ta/evil\n",
        f"f\t0\t{FINE}\ta/evil\nf\t0\t{FINE}\ta\n",
        f"l\t..\ta/b\nf\t0\t{FINE}\ta/b/evil\n",
        f"f\t0\t{FINE}\ta/b/evil\nl\t..\ta/b\n",
        "l\t/etc\tout\n",
        "l\t../..\tout\n",
        "l\t..\tout\n",
        "l\t../../b\ta/out\n",
        "l\tb/../..\tout\n",
        "l\t\tout\n",
        "d\t0\tx\tdevice\n",
        f"f\t-1\t{FINE}\ta\n",
        f"f\tmany\t{FINE}\ta\n",
        "f\t0\t../../../evil\ta\n",
        "f\t0\n",
        f"f\t0\t{FINE}\ta",
    ],
)
def test_a_manifest_that_reaches_outside_is_refused(tmp_path: Path, lines: str) -> None:
    (tmp_path / "box" / "code").mkdir(parents=True)
    cache = Cache(str(tmp_path / "cache"), limit_bytes=1 << 30)
    cache.add(FINE, [b""])
    with pytest.raises(workspace.Unsafe):
        lay_out("muster workspace 1\n" + lines, cache=cache, into=str(tmp_path / "box" / "code"))
    assert [path for path in tmp_path.rglob("evil") if tmp_path / "box" / "code" not in path.parents] == []


def test_an_existing_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """As if another process had put it there while the code is written."""
    code, outside = tmp_path / "code", tmp_path / "outside"
    code.mkdir()
    outside.mkdir()
    (code / "lib").symlink_to(outside)
    (code / "file").symlink_to(outside / "file")
    cache = Cache(str(tmp_path / "cache"), limit_bytes=1 << 30)
    cache.add(FINE, [b""])
    for path in ("lib/evil", "file"):
        with pytest.raises(workspace.Unsafe):
            workspace.unpack([manifest.Entry(path, "f", 0, FINE)], cache=cache, into=str(code))
    assert list(outside.iterdir()) == []


def test_a_hostile_manifest_fails_the_replica_with_a_reason(bench: Bench, control_plane: FakeControlPlane) -> None:
    control_plane.lists = f"muster workspace 1\nf\t0\t{FINE}\t../evil\n"
    bench.start(bench.replica(["true"], wants_workspace=True)).wait(PATIENCE_SECONDS)
    assert bench.status()["reason"].startswith("the workspace is not safe: '../evil'")
    assert list(bench.root.rglob("evil")) == []


def test_the_agent_reads_the_documented_manifest() -> None:
    entries = manifest.read(listed(CODE))
    assert {entry.path: (entry.kind, entry.target) for entry in entries} == {
        "run.sh": ("x", ""), "lib/words.txt": ("f", ""), "again.txt": ("f", ""), "link": ("l", "lib"), "lib/up": ("l", "../run.sh"),
    }  # fmt: skip


# -- packs and the cache


def contents(data: bytes) -> dict[str, bytes]:
    return {file.digest: b"".join(file.pieces) for file in pack.files(io.BytesIO(data).read)}


@pytest.mark.parametrize("kind", [packs.RAW, packs.DEFLATED])
def test_packed_files_unpack_unchanged(kind: int) -> None:
    given = [b"", b"a", os.urandom(700_000), b"\0" * 3_000_000]
    assert contents(packs.pack(*given, kind=kind)) == {packs.sha(one): one for one in given}


def test_a_decompression_bomb_stops_at_its_declared_size_and_takes_no_memory() -> None:
    bomb = (
        b"MUSTERP1"
        + packs.frame(b"", size=1000, digest=FINE, packed=zlib.compress(b"\0" * 50_000_000, 9))
        + packs.end(1)
    )
    tracemalloc.start()
    with pytest.raises(pack.Damaged):
        contents(bomb)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3_000_000


@pytest.mark.parametrize("at", range(0, 160, 7))
def test_a_pack_truncated_anywhere_is_rejected(at: int) -> None:
    whole = packs.pack(b"some content", b"more", kind=packs.RAW)
    with pytest.raises((pack.Broken, pack.Damaged)):
        contents(whole[: min(at, len(whole) - 1)])


def failing() -> Iterator[bytes]:
    yield b"half"
    raise pack.Damaged("the rest is wrong")


def test_a_damaged_file_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "cache"), limit_bytes=1 << 30)
    with pytest.raises(pack.Damaged):
        cache.add(FINE, failing())
    assert files_in(tmp_path) == []
    assert cache.absent([FINE]) == [FINE]


def test_the_cache_keeps_its_limit_and_the_files_used_last(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "cache"), limit_bytes=1000)
    given = {packs.sha(bytes([number])): bytes([number]) * 100 for number in range(12)}
    for age, (digest, content) in enumerate(given.items()):
        cache.add(digest, [content])
        os.utime(tmp_path / "cache" / digest[:2] / digest, (age, age))
    oldest, *_, newest = given
    used = io.BytesIO()
    cache.copy(oldest, used, size=100)  # marks it as used, whatever it returns
    stale = tmp_path / "cache" / "part-left"
    stale.write_bytes(b"x")
    os.utime(stale, (0, 0))
    cache.add(oldest, [given[oldest]])
    cache.trim()
    kept = [digest for digest in given if not cache.absent([digest])]
    assert oldest in kept and newest in kept
    assert len(kept) == 8 and not stale.exists()


def test_code_larger_than_the_cache_still_arrives(bench: Bench, control_plane: FakeControlPlane) -> None:
    """The cache keeps nothing: in every round, a fetched file is evicted before it is copied."""
    bench.start(bench.replica(["./run.sh"], wants_workspace=True, cache=str(cache_of(bench)), cache_bytes=0)).wait(
        PATIENCE_SECONDS
    )
    assert control_plane.of().texts() == ["hello", "hello"]
    assert files_in(cache_of(bench)) == []


def test_many_agents_use_one_cache_at_once(tmp_path: Path) -> None:
    """Each adds, reads and trims concurrently; none ever reads a wrong byte."""
    script = tmp_path / "use.py"
    script.write_text(
        "import io, random, sys\n"
        "from agent.code.cache import Cache\n"
        "import hashlib\n"
        "chance = random.Random(int(sys.argv[2]))\n"
        "cache = Cache(sys.argv[1], limit_bytes=6000)\n"
        "contents = [bytes([n]) * 500 for n in range(20)]\n"
        "for _ in range(300):\n"
        "    content = chance.choice(contents)\n"
        "    digest = hashlib.sha256(content).hexdigest()\n"
        "    into = io.BytesIO()\n"
        "    if cache.copy(digest, into, size=500):\n"
        "        assert into.getvalue() == content\n"
        "    else:\n"
        "        with cache.lock(is_cancelled=lambda: False) as is_held:\n"
        "            assert is_held\n"
        "            cache.add(digest, [content])\n"
        "            cache.trim()\n"
    )
    users = [subprocess.Popen([sys.executable, str(script), str(tmp_path / "cache"), str(seed)]) for seed in range(4)]
    assert [user.wait(PATIENCE_SECONDS) for user in users] == [0, 0, 0, 0]
    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()) <= 6000


def test_waiting_for_the_lock_can_be_cancelled(tmp_path: Path) -> None:
    cache, cancelled = Cache(str(tmp_path), limit_bytes=1), threading.Event()
    with cache.lock(is_cancelled=never):
        threading.Timer(0.2, cancelled.set).start()
        with Cache(str(tmp_path), limit_bytes=1).lock(is_cancelled=cancelled.is_set) as is_held:
            assert not is_held
