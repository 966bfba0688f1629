"""A whole installation: what it is while it runs, is found by a second start, and leaves nothing where it ends badly."""

import json
import os
import pty
import subprocess
import sys

import pytest

from embedded import EmbeddedError
from embedded.installation import Installation
from embedded.processes import identity, is_alive
from embedded.servers import Servers
from tests.process.embedded.world import children, demo, environ, status
from tests.support.patience import until


def muster_cli(muster: Installation, *arguments: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-m", "muster.cli", *arguments]
    return subprocess.run(argv, env=muster.env, text=True, capture_output=True, check=False)


@pytest.mark.ci
def test_it_answers_and_all_its_processes_run(muster):
    assert status(f"{muster.url}/readyz") == 200
    assert set(muster.pids) == {"supervisor", "postgres", "redis", "web", "tasks", "beat", "watcher"}


@pytest.mark.ci
def test_bin_muster_is_logged_in_and_there_is_a_queue(muster):
    assert "admin" in muster_cli(muster, "whoami").stdout
    (queue,) = json.loads(muster_cli(muster, "queues", "-o", "json").stdout)
    assert (queue["name"], queue["cluster"], queue["team"]) == ("default", "local", "demo")
    assert queue["nominal"] >= 1


@pytest.mark.ci
def test_a_foreign_host_name_is_refused(muster):
    assert status(f"{muster.url}/login", Host="evil.example") == 400


@pytest.mark.ci
def test_a_second_start_prints_the_url_and_exits_with_0(muster):
    said = demo(muster.folder)
    assert said.returncode == 0
    assert muster.url in said.stdout


@pytest.mark.ci
def test_files_in_the_data_folder_are_private_to_their_owner(muster):
    for name in ("secrets.json", "instance.json", "cli.json", "running.json"):
        assert (muster.folder / name).stat().st_mode & 0o077 == 0
    assert json.loads((muster.folder / "local/control.json").read_text()) == {"url": muster.url}


def test_a_failed_start_reports_its_reason_and_leaves_nothing(tmp_path):
    env = {"DATABASE_URL": "mysql://there/muster"}
    one = Installation(tmp_path / "data", environ=env, is_temporary=True)
    with pytest.raises(EmbeddedError, match="DATABASE_URL must begin with postgres://"):
        one.start()
    assert not (tmp_path / "data/running.json").exists()


def test_reset_requires_confirmation(tmp_path):
    (tmp_path / "data").mkdir()
    said = demo(tmp_path / "data", "--reset")
    assert (said.returncode, (tmp_path / "data").exists()) == (1, True)
    assert "--yes" in said.stdout


def test_stop_reports_that_nothing_is_running(tmp_path):
    said = demo(tmp_path / "data", "--stop")
    assert (said.returncode, "Nothing is running" in said.stdout) == (0, True)


@pytest.mark.full  # that children die with a killed supervisor: test_supervisor.py
def test_a_killed_supervisor_leaves_no_process_and_the_next_one_starts(tmp_path):
    first = Installation(tmp_path / "data", is_temporary=True)
    first.start()
    everything = [identity(pid) for pid in children(first.pids["supervisor"])]
    first.kill()
    until(lambda: not any(one and is_alive(one) for one in everything))
    with Installation(tmp_path / "data", is_temporary=True) as second:
        assert status(f"{second.url}/readyz") == 200


@pytest.mark.full  # that none is started: test_servers.py
def test_external_servers_are_used_and_keep_running_after_a_stop(tmp_path):
    with Servers(tmp_path / "servers", is_temporary=True) as servers:
        env = {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
        with Installation(tmp_path / "data", environ=env) as muster:
            assert set(muster.pids) == {"supervisor", "web", "tasks", "beat", "watcher"}
            assert status(f"{muster.url}/readyz") == 200
        assert all(process.poll() is None for process in servers.running.values())
        assert demo(tmp_path / "data", "--reset", "--yes").returncode == 0  # removes what it keeps outside that folder


@pytest.mark.full  # the terminal's other signal, Ctrl-C: test_two_starts.py
def test_a_closed_terminal_ends_every_process(tmp_path):
    pid, terminal = pty.fork()
    if pid == 0:
        words = [sys.executable, "-m", "embedded", "demo", "--no-job", "--port", "0", "--temporary"]
        os.execve(sys.executable, words, environ(tmp_path / "data"))
    said = b""
    while b"Ctrl-C" not in said:
        said += os.read(terminal, 4096)
    everything = [identity(one) for one in children(pid)]
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not any(one and is_alive(one) for one in everything)
