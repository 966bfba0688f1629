"""One data folder, started twice: on a terminal until Ctrl-C, then for other hosts, where its processes are killed."""

import os
import signal

import httpx
import pytest
from muster import Client

from embedded.processes import identity, is_alive
from tests.process.embedded import jobs
from tests.process.embedded.world import children, demo, post, sign_in, status
from tests.support.patience import until

pytestmark = pytest.mark.ci

OWN = "four unrelated brown llamas"


def test_ctrl_c_suspends_the_job_and_ends_every_process(first):
    assert first.code == 0 and first.pages == 200
    assert len(first.processes) > 8
    assert not any(one and is_alive(one) for one in first.processes)
    assert "Suspended 1 job; state kept" in first.said
    assert "instance.json" not in first.files


def test_the_next_start_finds_its_data_and_resumes_the_job_from_its_checkpoint(first, muster):
    assert muster.token == first.token
    log = muster.folder / "supervisor.log"  # it answers first and writes this a moment later
    until(lambda: "as before; bin/demo --reset-password" in log.read_text())
    until(lambda: jobs.step_of(muster, first.job) > first.step)
    jobs.finish(muster, first.job)
    with Client(muster.url, muster.token) as client:
        said = [line.text for line in client.logs(first.job) if line.text.startswith("from")]
    assert (said[0], said[-1]) == ("from 0", f"from {first.step}")


def test_the_first_password_must_be_changed_once_other_hosts_are_allowed(first, muster):
    client = sign_in(muster, first.password)
    assert client.get("/jobs").headers["Location"] == "/account/password"
    sent = {"username": "admin", "password": first.password, "name": "x"}
    assert httpx.post(f"{muster.url}/api/v1/login", json=sent, timeout=60).status_code == 403
    post(client, "/account/password", old_password=first.password, new_password1=OWN, new_password2=OWN)
    assert client.get("/jobs").status_code == 200
    given = demo(first.folder, "--reset-password").stdout.split()[-1]  # again a password set by an administrator
    assert sign_in(muster, given).get("/jobs").headers["Location"] == "/account/password"
    token = {"Authorization": f"Bearer {muster.token}"}  # bin/muster keeps working
    assert httpx.get(f"{muster.url}/api/v1/me", headers=token, timeout=60).status_code == 200


@pytest.mark.parametrize("name", ["watcher", "web", "redis", "postgres"])
def test_a_process_that_is_killed_is_started_again(muster, name):
    old = muster.pids[name]
    os.kill(old, signal.SIGKILL)
    until(lambda: muster.pids.get(name) not in (None, old))
    until(lambda: status(f"{muster.url}/readyz") == 200)
    assert f"{name} ended (killed by SIGKILL)" in (muster.folder / "supervisor.log").read_text()


def test_a_stop_from_another_terminal_leaves_no_process(muster):
    """The last one: nothing runs afterwards."""
    everything = [identity(pid) for pid in (muster.pids["supervisor"], *children(muster.pids["supervisor"]))]
    assert len(everything) > 8
    assert "Stopped" in demo(muster.folder, "--stop").stdout
    until(lambda: not any(one and is_alive(one) for one in everything))
    assert not (muster.folder / "instance.json").exists()
