"""The rig itself: it starts its programs, leaves nothing behind, and reports missing requirements."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rig import programs
from rig.processes import DidNotStart, Process
from tests.cluster.conftest import need_rig
from tests.support.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[3]


def test_without_go_the_message_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "install Go 1.24 or later" in programs.why_not()
    with pytest.raises(programs.CanNotBuild, match="install Go"):
        programs.build()


@pytest.mark.parametrize("said, is_fine", [("go1.23.9", False), ("go1.24.0", True), ("go2.0", True), ("devel", False)])
def test_a_go_version_that_is_too_old_is_named(tmp_path, monkeypatch, said, is_fine):
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho {said}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert (programs.why_not() == "") is is_fine
    assert is_fine or said in programs.why_not()


def test_a_program_that_exits_immediately_is_reported_with_its_output(tmp_path):
    process = Process("sh", ["/bin/sh", "-c", "echo no such flag; exit 1"], log=tmp_path / "log")
    process.start()
    with pytest.raises(DidNotStart, match="no such flag"):
        process.until(lambda: False, seconds=30)


def test_a_manually_started_rig_runs_until_sigterm_and_leaves_nothing_behind(tmp_path):
    need_rig()
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "rig", "up", "--nodes", "1"]
    rig = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert rig.stdout is not None
        said = [rig.stdout.readline() for _ in range(3)]
        kubeconfig = Path(said[2].split()[1])
        assert said[2].startswith("muster:") and kubeconfig.is_file()
        children = _children(rig.pid)
        assert len(children) == len(programs.names())
        rig.send_signal(signal.SIGTERM)
        assert rig.wait(PATIENCE_SECONDS) == 0
    finally:
        rig.kill()
    assert list(tmp_path.iterdir()) == []
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
