"""One data folder, started twice: on a terminal until Ctrl-C, then for other hosts, where its processes are killed."""

import os
import pty
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from muster import Client

from embedded.installation import Installation
from embedded.processes import Identity, identity, is_alive
from tests.process.embedded import jobs
from tests.process.embedded.world import children, demo, environ, status
from tests.support.patience import until

OWN = "four unrelated brown llamas"


@dataclass
class First:
    """What was seen of the first start, which Ctrl-C ended while a job ran."""

    folder: Path
    password: str
    token: str
    pages: int  # the status of a page for somebody who signed in with the password
    job: int
    step: int  # that the job had saved
    processes: list[Identity | None]
    code: int
    said: str


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> First:
    folder = tmp_path_factory.mktemp("twice") / "data"
    pid, terminal = pty.fork()
    if pid == 0:
        words = [sys.executable, "-m", "embedded", "demo", "--no-job", "--port", "0"]
        os.execve(sys.executable, words, environ(folder))
    said = b""
    while b"Ctrl-C" not in said:
        said += os.read(terminal, 4096)
    running = Installation(folder)  # it is not started here, only read
    password = re.search(r"password  (\S+)", said.decode())[1]
    token, pages = running.token, sign_in(running, password).get("/jobs").status_code
    job = jobs.started(running, folder.parent)
    everything = [identity(one) for one in children(pid)]
    os.write(terminal, b"\x03")
    with suppress(OSError):  # at its end
        while more := os.read(terminal, 4096):
            said += more
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    step = jobs.step_of(running, job)
    return First(folder, password, token, pages, job, step, everything, code, said.decode())


@pytest.fixture(scope="module")
def second(first: First) -> Iterator[Installation]:
    """As with --host: others could reach it."""
    hosts = {"MUSTER_ALLOWED_HOSTS": "127.0.0.1,muster.example"}
    with Installation(first.folder, environ=hosts, options=("--no-job", "--resume")) as muster:
        yield muster
    assert demo(first.folder, "--reset", "--yes").returncode == 0  # removes what it keeps outside that folder
    assert not first.folder.exists()


def sign_in(muster: Installation, password: str) -> httpx.Client:
    client = httpx.Client(base_url=muster.url, timeout=60)
    client.get("/login")
    post(client, "/login", username="admin", password=password)
    return client


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return client.post(path, data={**fields, "csrfmiddlewaretoken": client.cookies["csrftoken"]})


def test_ctrl_c_suspends_the_job_and_ends_every_process(first):
    assert first.code == 0 and first.pages == 200
    assert len(first.processes) > 8
    assert not any(one and is_alive(one) for one in first.processes)
    assert "Suspended 1 job; state kept" in first.said
    assert not (first.folder / "instance.json").exists()


def test_the_next_start_finds_its_data_and_resumes_the_job_from_its_checkpoint(first, second):
    assert second.token == first.token
    log = second.folder / "supervisor.log"  # it answers first and writes this a moment later
    until(lambda: "as before; bin/demo --reset-password" in log.read_text())
    until(lambda: jobs.step_of(second, first.job) > first.step)
    jobs.finish(second, first.job)
    with Client(second.url, second.token) as client:
        said = [line.text for line in client.logs(first.job) if line.text.startswith("from")]
    assert (said[0], said[-1]) == ("from 0", f"from {first.step}")


def test_the_first_password_must_be_changed_once_other_hosts_are_allowed(first, second):
    client = sign_in(second, first.password)
    assert client.get("/jobs").headers["Location"] == "/account/password"
    sent = {"username": "admin", "password": first.password, "name": "x"}
    assert httpx.post(f"{second.url}/api/v1/login", json=sent, timeout=60).status_code == 403
    post(client, "/account/password", old_password=first.password, new_password1=OWN, new_password2=OWN)
    assert client.get("/jobs").status_code == 200
    given = demo(first.folder, "--reset-password").stdout.split()[-1]  # again a password set by an administrator
    assert sign_in(second, given).get("/jobs").headers["Location"] == "/account/password"
    token = {"Authorization": f"Bearer {second.token}"}  # bin/muster keeps working
    assert httpx.get(f"{second.url}/api/v1/me", headers=token, timeout=60).status_code == 200


@pytest.mark.parametrize("name", ["watcher", "web", "redis", "postgres"])
def test_a_process_that_is_killed_is_started_again(second, name):
    old = second.pids[name]
    os.kill(old, signal.SIGKILL)
    until(lambda: second.pids.get(name) not in (None, old))
    until(lambda: status(f"{second.url}/readyz") == 200)
    assert f"{name} ended (killed by SIGKILL)" in (second.folder / "supervisor.log").read_text()


def test_a_stop_from_another_terminal_leaves_no_process(second):
    """The last one: nothing runs afterwards."""
    everything = [identity(pid) for pid in (second.pids["supervisor"], *children(second.pids["supervisor"]))]
    assert len(everything) > 8
    assert "Stopped" in demo(second.folder, "--stop").stdout
    until(lambda: not any(one and is_alive(one) for one in everything))
    assert not (second.folder / "instance.json").exists()
