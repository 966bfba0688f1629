"""A tasks process that stands still with a visit in hand: another one does its work, and what it writes late is refused."""

import os
import signal
import time

import pytest

from tests.faults.house import until
from tests.faults.processes import lease_token, refusals, second_tasks

POINTS = ("cluster.apply.before", "cluster.observe.after", "cluster.delete.before")


@pytest.mark.parametrize("point", [POINTS[0], *(pytest.param(one, marks=pytest.mark.long) for one in POINTS[1:])])
def test_the_late_writes_of_a_stopped_process_are_refused(house, matrix, cast, point):
    """The second process begins only once the first stands still, so that it is the first's visit that is taken over."""
    house.arm(point, number="STOP")
    job = house.submit("--lines", "20")
    stopped = until(lambda: house.fired(point))
    since, before = time.time(), lease_token(house, job)
    try:
        with second_tasks(house):
            cast.until_phase(job, "succeeded")
            took = time.time() - since
            assert lease_token(house, job) > before
            history = house.api.events(job)
            os.kill(stopped, signal.SIGCONT)
            until(lambda: refusals(house, job), what="the refusal")
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert house.api.events(job) == history  # nothing was written after it
    matrix.add("SIGSTOP tasks", point, "refused", took)
    cast.verify(job, "succeeded", attempts=1)


@pytest.mark.long
def test_a_process_stopped_within_a_transaction_holds_no_lock_for_long(house, matrix, cast):
    """It has written its step and not committed it; Postgres ends a transaction that idles."""
    house.arm("store.record.before", number="STOP")
    job = house.submit("--lines", "20")
    stopped = until(lambda: house.fired("store.record.before"))
    since = time.time()
    try:
        with second_tasks(house):
            cast.until_phase(job, "succeeded")
            matrix.add("SIGSTOP tasks", "store.record.before", "taken over", time.time() - since)
            os.kill(stopped, signal.SIGCONT)
            other = house.submit("--lines", "1")
            cast.until_phase(other, "succeeded")
    finally:
        os.kill(stopped, signal.SIGCONT)
    cast.verify(job, "succeeded", attempts=1)
