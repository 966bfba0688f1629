"""A tasks process is stopped during a visit: another one takes over, and the late writes of the first are refused."""

import os
import signal
import time

import pytest

from tests.support.patience import until
from tests.system.faults.processes import lease_token, refusals, second_tasks

POINTS = ("cluster.apply.before", "cluster.observe.after", "cluster.delete.before")


@pytest.mark.parametrize(
    "point", [POINTS[0], *(pytest.param(one, marks=pytest.mark.soak(guards=("jobs/control",))) for one in POINTS[1:])]
)
def test_the_late_writes_of_a_stopped_process_are_refused(installation, matrix, phase_jobs, point):
    """The second process starts only once the first is stopped, so that the first one's visit is taken over."""
    installation.arm(point, number="STOP")
    job = installation.submit("--lines", "20")
    stopped = until(lambda: installation.fired(point))
    since, before = time.time(), lease_token(installation, job)
    try:
        with second_tasks(installation):
            phase_jobs.until_phase(job, "succeeded")
            took = time.time() - since
            assert lease_token(installation, job) > before
            history = installation.api.events(job)
            os.kill(stopped, signal.SIGCONT)
            until(lambda: refusals(installation, job), says="the refusal")
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert installation.api.events(job) == history  # nothing was written after it
    matrix.add("SIGSTOP tasks", point, "refused", took)
    phase_jobs.verify(job, "succeeded", attempts=1)


@pytest.mark.full
def test_a_process_stopped_within_a_transaction_does_not_hold_its_locks_for_long(installation, matrix, phase_jobs):
    """It has written its step but not committed; Postgres ends idle transactions."""
    installation.arm("store.record.before", number="STOP")
    job = installation.submit("--lines", "20")
    stopped = until(lambda: installation.fired("store.record.before"))
    since = time.time()
    try:
        with second_tasks(installation):
            phase_jobs.until_phase(job, "succeeded")
            matrix.add("SIGSTOP tasks", "store.record.before", "taken over", time.time() - since)
            os.kill(stopped, signal.SIGCONT)
            other = installation.submit("--lines", "1")
            phase_jobs.until_phase(other, "succeeded")
    finally:
        os.kill(stopped, signal.SIGCONT)
    phase_jobs.verify(job, "succeeded", attempts=1)
