"""Every process of an installation is killed while there is a job in every phase."""

import os
import signal
import time

import pytest

from tests.faults.house import until

FAULTS = ("web", "tasks", "beat", "watcher", "redis", "postgres")
SAMPLE = ("tasks",)
FULL = [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.long) for name in FAULTS]


def strike(house, name: str) -> float:
    """kill -9; the moment at which the fault ended. The supervisor's work is already part of getting right again."""
    old = house.pid(name)
    os.kill(old, signal.SIGKILL)
    at = time.time()
    until(lambda: house.muster.pids.get(name) not in (None, old), what=f"{name} started again")
    return at


@pytest.mark.parametrize("name", FULL)
def test_a_process_is_killed(house, cast, matrix, name):
    cast.assemble()
    since = strike(house, name)
    cast.go_on()
    matrix.add_all(f"kill -9 {name}", cast.settle(since))
    cast.dismiss("starting", "stopping", "new")
    cast.admit()
    since = strike(house, name)
    cast.go_on()
    seconds = cast.settle(since)
    matrix.add_all(f"kill -9 {name}", {"admitted": seconds["admitted"]}, since=since)
    cast.dismiss("admitted", "new")


def test_whoever_lived_through_all_of_it_is_whole(house, cast):
    """The jobs that ran, waited and slept meanwhile: one attempt each, all lines there."""
    running = cast.jobs["running"]
    cast.dismiss("running", "queued", "suspended")
    assert house.api.job(running)["attempt"] == 1
