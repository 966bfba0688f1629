"""The agent's keeper: it deletes folders of runs and nothing else, follows no link, stops in time, and says what is left."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.errands import keeper
from jobs.clusters.kubernetes.storage.keeper import read
from jobs.core.keeping import Errand

ROOT = Path(__file__).resolve().parents[3]


def later(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


@pytest.fixture
def claim(tmp_path) -> Path:
    """A claim with the folders of two jobs, beside something else."""
    for run in ("1-abc", "2-def"):
        (tmp_path / "jobs" / run / "checkpoints").mkdir(parents=True)
        (tmp_path / "jobs" / run / "checkpoints" / "last.pt").write_bytes(b"x" * 100)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set").write_text("kept")
    return tmp_path


def test_only_the_named_folders_go(claim):
    assert keeper.delete(str(claim / "jobs"), ["1-abc", "9-gone"], end=later()) == (["1-abc", "9-gone"], {}, [])
    assert [one.name for one in (claim / "jobs").iterdir()] == ["2-def"]


@pytest.mark.parametrize(
    "name", ["..", "../data", ".", "", "/", "1-abc/checkpoints", "1-abc/../../data", "data", "1-abc\n", "1-ABC", "-1"]
)
def test_what_is_not_the_name_of_a_run_is_not_deleted(claim, name):
    before = sorted(claim.rglob("*"))
    gone, left, _ = keeper.delete(str(claim / "jobs"), [name], end=later())
    assert (gone, left) == ([], {name: "it is not the name of a run"}) and sorted(claim.rglob("*")) == before


def test_links_in_a_folder_are_deleted_and_not_followed(claim):
    own = claim / "jobs" / "1-abc"
    (own / "to-a-file").symlink_to(claim / "data" / "set")
    (own / "to-a-folder").symlink_to(claim / "data")
    (own / "to-another").symlink_to("../2-def")
    os.mkfifo(own / "pipe")
    assert keeper.delete(str(claim / "jobs"), ["1-abc"], end=later())[0] == ["1-abc"]
    assert (claim / "data" / "set").read_text() == "kept"
    assert (claim / "jobs" / "2-def" / "checkpoints" / "last.pt").exists()


def test_a_link_in_the_place_of_a_folder_is_left(claim):
    (claim / "jobs" / "3-ghi").symlink_to(claim / "data")
    (claim / "jobs" / "4").write_text("a file")
    gone, left, _ = keeper.delete(str(claim / "jobs"), ["3-ghi", "4", "1-abc"], end=later())
    assert gone == ["1-abc"] and left == dict.fromkeys(("3-ghi", "4"), "it is not a folder")
    assert (claim / "data" / "set").read_text() == "kept"


def test_folders_without_rights_and_very_deep_ones_go_too(claim):
    own = claim / "jobs" / "1-abc"
    (own / "modules" / "closed").mkdir(parents=True)
    (own / "modules" / "file").write_text("x")
    (own / "modules" / "closed").chmod(0o000)
    (own / "modules").chmod(0o555)
    deep = os.open(own, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=deep)
        child = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = child
    os.close(deep)
    assert keeper.delete(str(claim / "jobs"), ["1-abc"], end=later()) == (["1-abc"], {}, [])
    assert not own.exists()


def test_what_is_not_deleted_in_time_is_late(claim):
    assert keeper.delete(str(claim / "jobs"), ["1-abc"], end=later(-1)) == ([], {}, ["1-abc"])
    assert (claim / "jobs" / "1-abc").is_dir()


def run(place: Path, told: object) -> subprocess.CompletedProcess:
    env = {**os.environ, "MUSTER_KEEP": told if isinstance(told, str) else json.dumps(told)}
    return subprocess.run(
        [sys.executable, "-m", "agent", "--keep", str(place)], cwd=ROOT, env=env, capture_output=True, check=False
    )


def test_the_command_prints_one_line_that_the_server_reads(claim):
    done = run(claim / "jobs", {"folders": ["1-abc", "2-def"], "seconds": 60})
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1, done.stderr
    kept = read(done.stdout, Errand("jobs", folders=("1-abc", "2-def")))
    assert kept.gone == {"1-abc", "2-def"} and not kept.left and not kept.late
    assert 0 < kept.use.free <= kept.use.total and kept.use.written_at == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize("told", ["", "x", "{}", "[]", {"folders": 3, "seconds": 1}, {"folders": [], "seconds": "x"}])
def test_a_command_that_was_told_nothing_does_nothing(claim, told):
    done = run(claim / "jobs", told)
    assert done.returncode == 2 and done.stdout == b"" and b"was not told what to do" in done.stderr
    assert len(list((claim / "jobs").iterdir())) == 2
