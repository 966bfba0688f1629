"""A whole installation: it starts, restarts dead processes, is found by a second start, and leaves nothing when stopped."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from embedded import EmbeddedError
from embedded.installation import Installation
from embedded.processes import identity, is_alive
from embedded.servers import Servers
from tests.process.embedded.world import ROOT, children


@pytest.fixture(scope="module")
def muster(tmp_path_factory):
    with Installation(tmp_path_factory.mktemp("installation"), is_temporary=True) as running:
        yield running


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, TimeoutError):  # not listening yet, or too busy to answer
        return 0


def demo(folder: Path, *arguments: str, seconds: float = 600) -> subprocess.CompletedProcess:
    """Run bin/demo with these arguments, as in another terminal."""
    env = {**os.environ, "MUSTER_DATA_DIR": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT}/client"}
    for name in ("DATABASE_URL", "REDIS_URL", "MUSTER_SECRET_KEY", "MUSTER_ALLOWED_HOSTS", "MUSTER_PUBLIC_URL"):
        env.pop(name, None)
    argv = [sys.executable, "-m", "embedded", "demo", *arguments]
    return subprocess.run(argv, env=env, text=True, capture_output=True, timeout=seconds, check=False)


def muster_cli(muster: Installation, *arguments: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-m", "muster.cli", *arguments]
    return subprocess.run(argv, env=muster.env, text=True, capture_output=True, check=False)


def until(is_so, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_answers_and_all_its_processes_run(muster):
    assert status(f"{muster.url}/readyz") == 200
    assert set(muster.pids) == {"supervisor", "postgres", "redis", "web", "tasks", "beat", "watcher"}


def test_bin_muster_is_logged_in_and_there_is_a_queue(muster):
    assert "admin" in muster_cli(muster, "whoami").stdout
    (queue,) = json.loads(muster_cli(muster, "queues", "-o", "json").stdout)
    assert (queue["name"], queue["cluster"], queue["team"]) == ("default", "local", "demo")
    assert queue["nominal"] >= 1


def test_a_foreign_host_name_is_refused(muster):
    assert status(f"{muster.url}/login", Host="evil.example") == 400


@pytest.mark.parametrize("name", ["watcher", "web", "redis", "postgres"])
def test_a_process_that_is_killed_is_started_again(muster, name):
    old = muster.pids[name]
    os.kill(old, signal.SIGKILL)
    until(lambda: muster.pids.get(name) not in (None, old))
    until(lambda: status(f"{muster.url}/readyz") == 200)
    assert f"{name} ended (killed by SIGKILL)" in (muster.folder / "supervisor.log").read_text()


def test_a_second_start_prints_the_url_and_exits_with_0(muster):
    said = demo(muster.folder)
    assert said.returncode == 0
    assert muster.url in said.stdout


def test_the_password_can_be_reset_while_it_runs(muster):
    said = demo(muster.folder, "--reset-password")
    password = said.stdout.split()[-1]
    body = json.dumps({"username": "admin", "password": password, "name": "test"}).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{muster.url}/api/v1/login", data=body, headers=headers)
    ) as answer:
        assert json.loads(answer.read())["user"] == "admin"


def test_files_in_the_data_folder_are_private_to_their_owner(muster):
    for name in ("secrets.json", "instance.json", "cli.json", "running.json"):
        assert (muster.folder / name).stat().st_mode & 0o077 == 0
    assert json.loads((muster.folder / "local/control.json").read_text()) == {"url": muster.url}


def test_stopping_leaves_no_process_and_a_second_start_finds_its_data(tmp_path):
    first = Installation(tmp_path / "data")
    first.start()
    token = first.token
    everything = [identity(pid) for pid in (first.pids["supervisor"], *children(first.pids["supervisor"]))]
    assert len(everything) > 8
    assert "Stopped" in demo(tmp_path / "data", "--stop").stdout
    assert not any(one and is_alive(one) for one in everything)
    assert not (tmp_path / "data/instance.json").exists()
    second = Installation(tmp_path / "data")
    began = time.monotonic()
    with second:
        print(f"second start: {time.monotonic() - began:.1f} s")
        assert second.token == token
        log = tmp_path / "data/supervisor.log"  # it answers first and writes this a moment later
        until(lambda: "as before; bin/demo --reset-password" in log.read_text())
    assert demo(tmp_path / "data", "--reset", "--yes").returncode == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.sampled
def test_a_killed_supervisor_leaves_no_process_and_the_next_one_starts(tmp_path):
    first = Installation(tmp_path / "data", is_temporary=True)
    first.start()
    everything = [identity(pid) for pid in children(first.pids["supervisor"])]
    first.kill()
    until(lambda: not any(one and is_alive(one) for one in everything))
    with Installation(tmp_path / "data", is_temporary=True) as second:
        assert status(f"{second.url}/readyz") == 200


def test_a_failed_start_reports_its_reason_and_leaves_nothing(tmp_path):
    env = {"DATABASE_URL": "mysql://there/muster"}
    one = Installation(tmp_path / "data", environ=env, is_temporary=True)
    with pytest.raises(EmbeddedError, match="DATABASE_URL must begin with postgres://"):
        one.start()
    assert not (tmp_path / "data/running.json").exists()


@pytest.mark.sampled
def test_external_servers_are_used_and_keep_running_after_a_stop(tmp_path):
    with Servers(tmp_path / "servers", is_temporary=True) as servers:
        env = {"DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url}
        with Installation(tmp_path / "data", environ=env) as muster:
            assert set(muster.pids) == {"supervisor", "web", "tasks", "beat", "watcher"}
            assert status(f"{muster.url}/readyz") == 200
        assert all(process.poll() is None for process in servers.running.values())
        assert demo(tmp_path / "data", "--reset", "--yes").returncode == 0  # removes what it keeps outside that folder


def test_reset_requires_confirmation(tmp_path):
    (tmp_path / "data").mkdir()
    said = demo(tmp_path / "data", "--reset")
    assert (said.returncode, (tmp_path / "data").exists()) == (1, True)
    assert "--yes" in said.stdout


def test_stop_reports_that_nothing_is_running(tmp_path):
    said = demo(tmp_path / "data", "--stop")
    assert (said.returncode, "Nothing is running" in said.stdout) == (0, True)


@pytest.mark.parametrize("way", ["ctrl-c", pytest.param("closed", marks=pytest.mark.sampled)])
def test_ctrl_c_and_a_closed_terminal_end_every_process(tmp_path, way):
    pid, terminal = pty.fork()
    if pid == 0:
        env = {**os.environ, "MUSTER_DATA_DIR": str(tmp_path / "data"), "PYTHONPATH": f"{ROOT}:{ROOT}/client"}
        kept = {
            name: value for name, value in env.items() if name not in ("DATABASE_URL", "REDIS_URL", "MUSTER_SECRET_KEY")
        }
        os.execve(
            sys.executable,
            [sys.executable, "-m", "embedded", "demo", "--no-job", "--port", "0", "--temporary"],
            kept,
        )
    said = b""
    while b"Ctrl-C" not in said:
        said += os.read(terminal, 4096)
    everything = [identity(one) for one in children(pid)]
    if way == "ctrl-c":
        os.write(terminal, b"\x03")
    else:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not any(one and is_alive(one) for one in everything)
