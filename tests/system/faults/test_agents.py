"""An agent is killed: its ranks end too, its job is retried or fails according to its policy, and its lines are kept."""

import os
import signal
import time

import pytest

from tests.support.patience import until
from tests.system.faults.checks import check, read_claims


def kill_one_agent(installation, job: int) -> None:
    pid, _ = until(lambda: installation.agents(job))[0]
    os.kill(pid, signal.SIGKILL)


def test_an_agent_is_killed_in_every_phase_that_has_agents(installation, phase_jobs, matrix):
    retried, failing = installation.submit(max_retries=1), installation.submit()
    stopping, starting = installation.submit("--stubborn", max_retries=1), 0
    for job in (retried, failing, stopping):
        phase_jobs.until_phase(job, "running")
        until(lambda job=job: len(read_claims(installation, job)) == 2, says=f"ranks of job {job}")
    installation.api.act(stopping, "cancel")
    phase_jobs.until_phase(stopping, "stopping")
    installation.arm("agent.spawn.before", number="STOP")
    starting = installation.submit(nodes=1, max_retries=1)
    until(lambda: installation.fired("agent.spawn.before"))
    for job in (retried, failing, starting):
        kill_one_agent(installation, job)
    kill_one_agent(installation, stopping)
    since = time.time()
    seconds = {}
    for where, job, is_right in (
        ("running, to be retried", retried, lambda now: now["phase"] == "running" and now["attempt"] == 2),
        ("running, no retry", failing, lambda now: now["phase"] == "failed"),
        ("starting", starting, lambda now: now["phase"] == "running" and now["attempt"] == 2),
    ):
        until(lambda job=job, is_right=is_right: is_right(installation.api.job(job)), says=where)
        seconds[where] = time.time() - since
    matrix.add_all("kill -9 agent", seconds)
    installation.finish(stopping)  # its other replica ignores SIGTERM and is within its grace period
    phase_jobs.until_phase(stopping, "cancelled")
    matrix.add("kill -9 agent", "stopping", "right")
    for job in (retried, starting):
        installation.finish(job)
        phase_jobs.until_phase(job, "succeeded")
        check(installation, job, attempts=2)
    check(installation, failing, phases=("failed",), attempts=1)
    check(installation, stopping, phases=("cancelled",), attempts=1)


@pytest.mark.full
def test_lines_read_by_a_killed_agent_are_in_the_log(installation, phase_jobs, matrix):
    """The web process is stopped, so that lines pile up in the spool; then the agent dies."""
    job = installation.submit(nodes=1)
    phase_jobs.until_phase(job, "running")
    pid, place = until(lambda: installation.agents(job))[0]
    os.kill(installation.pid("web"), signal.SIGSTOP)
    try:
        until(lambda: len(list((place / "spool").glob("*.batch"))) > 3)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not installation.carriers(job))
        (claim,) = read_claims(installation, job).values()
        left = len(list((place / "spool").glob("*.batch")))
    finally:
        os.kill(installation.pid("web"), signal.SIGCONT)
    since = time.time()
    phase_jobs.until_phase(job, "failed")
    matrix.add_all("kill -9 agent", {f"its last {left} batches": time.time() - since})
    check(installation, job, phases=("failed",))
    assert not list((place / "spool").glob("*.batch"))
    assert claim.lines - sum(line["rank"] >= 0 for line in installation.api.lines(job)) in (0, 1)
