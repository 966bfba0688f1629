"""What a job writes into its working folder goes on with it where folders are kept, and is named where they are not."""

import json
import os
import signal
from pathlib import Path

import pytest

from agent.code import working
from agent.state import StateFolder
from common.machine import trees
from tests.process.agent.bench import Bench
from tests.support.fake_control_plane import FakeControlPlane, Received
from tests.support.patience import PATIENCE_SECONDS

KEPT = {"keeps_folder": True, "is_rank": True, "framework": "plain"}


def replica_of(bench: Bench, attempt: int, command: list[str], *, files: dict[str, str] | None = None) -> Path:
    bench.attempt = bench.root / "jobs" / "42" / str(attempt)
    bench.attempt.mkdir(exist_ok=True)
    folder = bench.replica(command, files=files, **KEPT, attempt=attempt)
    (folder / "token").write_text(f"attempt-{attempt}")
    return folder


def run(bench: Bench, attempt: int, command: list[str], **told) -> Received:
    bench.start(replica_of(bench, attempt, command, **told)).wait(PATIENCE_SECONDS)
    return bench.control_plane.of(f"attempt-{attempt}")


def test_the_next_attempt_continues_with_the_files_of_one_that_was_killed(
    bench: Bench, control_plane: FakeControlPlane
) -> None:
    files = {"train.py": "v1", "notes.txt": "as sent"}
    script = (
        "mkdir out; echo 7 > out/ckpt.pt; ln -s ckpt.pt out/latest; echo more >> notes.txt; echo up; exec sleep 600"
    )
    agent = bench.start(replica_of(bench, 1, ["sh", "-c", script], files=files))
    bench.wait_for(lambda: control_plane.of("attempt-1").texts(0) == ["up"])
    agent.send_signal(signal.SIGKILL)
    agent.wait(PATIENCE_SECONDS)
    bench.wait_for(lambda: not bench.carriers())

    received = run(bench, 2, ["sh", "-c", "cat out/latest notes.txt"], files=files)
    assert received.texts(0) == ["7", "as sentmore"]
    (item,) = received.kind("folder")
    assert item["carried"]["attempt"] == 1 and item["carried"]["files"] == 3 and item["carried"]["left"] == 0
    assert set(item["carried"]["names"]) == {"out/ckpt.pt", "out/latest", "notes.txt"}


def test_an_attempt_that_never_had_its_code_is_passed_over(bench: Bench) -> None:
    run(bench, 1, ["sh", "-c", "echo 1 > kept"])
    replica_of(bench, 2, ["true"])  # its agent never started
    assert run(bench, 3, ["cat", "kept"]).texts(0) == ["1"]


def test_a_replaced_replica_continues_with_the_files_of_the_one_before(bench: Bench) -> None:
    bench.run(["sh", "-c", "echo 1 > kept"], **KEPT)
    folder = bench.replica(["cat", "kept"], index=1, **{**KEPT, "incarnation": 1})
    place = folder.rename(folder.with_name("worker-0.1"))
    described = (place / "replica.json").read_text().replace('"index": 1', '"index": 0')
    (place / "replica.json").write_text(described)
    bench.start(place).wait(PATIENCE_SECONDS)
    assert bench.control_plane.of("worker-1").texts(0) == ["1"]


def test_where_a_folder_is_gone_with_its_pod_the_files_are_named(bench: Bench) -> None:
    script = "mkdir -p out __pycache__; echo 12345 > out/model.pt; touch __pycache__/x.pyc"
    received = bench.run(["sh", "-c", script], files={"train.py": ""}, **{**KEPT, "keeps_folder": False})
    assert [one["lost"] for one in received.kind("folder")] == [{"files": 1, "bytes": 6, "names": ["out/model.pt"]}]


def test_a_job_that_writes_nothing_is_silent_about_it(bench: Bench) -> None:
    assert not bench.run(["true"], files={"a": ""}, **{**KEPT, "keeps_folder": False}).kind("folder")
    assert not run(bench, 2, ["true"], files={"a": ""}).kind("folder")


@pytest.fixture
def two(tmp_path: Path) -> list[StateFolder]:
    """The folders of a replica in two attempts, the first with three files that the job wrote."""
    folders = []
    for attempt in (1, 2):
        folder = StateFolder(str(tmp_path / "jobs" / "42" / str(attempt) / "worker-0"))
        os.makedirs(folder.code)
        spec = {"run": "42", "attempt": attempt, "role": "worker", "index": 0, "command": ["true"]}
        Path(folder.file("replica.json")).write_text(json.dumps(spec))
        working.mark(folder)
        folders.append(folder)
    bench = Path(folders[0].code)
    later = os.lstat(folders[0].file(working.MARKER)).st_ctime_ns
    for name in ("old", "newer", "newest"):
        while not (bench / name).exists() or os.lstat(bench / name).st_ctime_ns <= later:
            (bench / name).write_text(name)
        later = os.lstat(bench / name).st_ctime_ns
    return folders


def test_of_too_many_files_the_newest_are_moved(two: list[StateFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "MOST_FILES", 2)
    carried = working.carry(two[1], spec=two[1].spec())
    assert carried and (carried["names"], carried["left"]) == (["newest", "newer"], 1)
    assert sorted(os.listdir(two[1].code)) == ["newer", "newest"] and os.listdir(two[0].code) == ["old"]


def test_of_too_many_bytes_the_newest_that_fit_are_moved(
    two: list[StateFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "MOST_BYTES", len("newest") + len("old"))
    carried = working.carry(two[1], spec=two[1].spec())
    assert carried and (carried["names"], carried["left"]) == (["newest", "old"], 1)


def test_what_cannot_be_moved_stays_and_is_counted(two: list[StateFolder]) -> None:
    os.makedirs(os.path.join(two[1].code, "newer", "below"))
    carried = working.carry(two[1], spec=two[1].spec())
    assert carried and (carried["names"], carried["left"]) == (["newest", "old"], 1)
    assert os.listdir(two[0].code) == ["newer"]


def test_a_working_folder_that_is_a_link_is_left_alone(two: list[StateFolder], tmp_path: Path) -> None:
    os.rename(two[0].code, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", two[0].code)
    assert working.carry(two[1], spec=two[1].spec()) is None


def test_files_follow_where_the_attempt_between_was_killed_while_it_moved_them(two: list[StateFolder]) -> None:
    folder = StateFolder(os.path.join(os.path.dirname(os.path.dirname(two[0].path)), "3", "worker-0"))
    os.makedirs(folder.code)
    spec = {"run": "42", "attempt": 3, "role": "worker", "index": 0, "command": ["true"]}
    Path(folder.file("replica.json")).write_text(json.dumps(spec))
    os.replace(os.path.join(two[0].code, "newest"), os.path.join(two[1].code, "newest"))
    Path(two[1].code, "newer").write_text("of the second attempt")

    carried = working.carry(folder, spec=folder.spec())
    assert carried and (carried["files"], carried["attempt"], carried["left"]) == (3, 2, 0)
    assert Path(folder.code, "newer").read_text() == "of the second attempt", "the later one"
    assert sorted(os.listdir(folder.code)) == ["newer", "newest", "old"]


def test_what_an_attempt_has_left_on_purpose_is_not_looked_for_again(two: list[StateFolder]) -> None:
    working.carry(two[1], spec=two[1].spec())
    Path(two[0].code, "old").write_text("left behind")
    third = StateFolder(two[1].path.replace("/2/", "/3/"))
    os.makedirs(third.code)
    Path(third.file("replica.json")).write_text(
        json.dumps({"run": "42", "attempt": 3, "role": "worker", "index": 0, "command": ["true"]})
    )
    working.carry(third, spec=third.spec())
    assert Path(third.code, "old").read_text() == "old"


def test_of_a_tree_deeper_than_pythons_stack_the_rest_is_moved(
    two: list[StateFolder], request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: trees.remove(Path(two[0].code)))  # pytest cannot
    here = os.open(two[0].code, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("deepest", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    carried = working.carry(two[1], spec=two[1].spec())
    assert carried and carried["files"] == 3
