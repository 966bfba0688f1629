"""Every process of an installation is killed while there is a job in every phase."""

import os
import signal
import time

import pytest

from tests.support.patience import until

FAULTS = ("web", "tasks", "beat", "watcher", "redis", "postgres")
SAMPLE = ("tasks",)
FULL = [
    pytest.param(
        name, marks=() if name in SAMPLE else pytest.mark.soak(guards=("jobs/control", "embedded", "agent/output"))
    )
    for name in FAULTS
]


def strike(installation, name: str) -> float:
    """kill -9; return the moment at which the fault ended. The restart by the supervisor counts as part of recovery."""
    old = installation.pid(name)
    os.kill(old, signal.SIGKILL)
    at = time.time()
    until(lambda: installation.muster.pids.get(name) not in (None, old), says=f"{name} started again")
    return at


@pytest.mark.parametrize("name", FULL)
def test_a_process_is_killed(installation, phase_jobs, matrix, name):
    phase_jobs.assemble()
    since = strike(installation, name)
    phase_jobs.go_on()
    matrix.add_all(f"kill -9 {name}", phase_jobs.settle(since))
    phase_jobs.dismiss("starting", "stopping", "new")
    phase_jobs.admit()
    since = strike(installation, name)
    phase_jobs.go_on()
    seconds = phase_jobs.settle(since)
    matrix.add_all(f"kill -9 {name}", {"admitted": seconds["admitted"]}, since=since)
    phase_jobs.dismiss("admitted", "new")


def test_jobs_that_lived_through_all_kills_are_complete(installation, phase_jobs):
    """Jobs that were running, queued or suspended meanwhile have one attempt each and all their lines."""
    running = phase_jobs.jobs["running"]
    phase_jobs.dismiss("running", "queued", "suspended")
    assert installation.api.job(running)["attempt"] == 1
