"""An agent is killed: its ranks go with it, its job runs again or fails as its policy says, and its lines are kept."""

import os
import signal
import time

import pytest

from tests.faults.checks import check, read_claims
from tests.faults.house import until


def kill_one_agent(house, job: int) -> None:
    pid, _ = until(lambda: house.agents(job))[0]
    os.kill(pid, signal.SIGKILL)


def test_an_agent_is_killed_in_every_phase_that_has_one(house, cast, matrix):
    retried, failing = house.submit(max_retries=1), house.submit()
    stopping, starting = house.submit("--stubborn", max_retries=1), 0
    for job in (retried, failing, stopping):
        cast.until_phase(job, "running")
        until(lambda job=job: len(read_claims(house, job)) == 2, what=f"ranks of job {job}")
    house.api.act(stopping, "cancel")
    cast.until_phase(stopping, "stopping")
    house.arm("agent.spawn.before", number="STOP")
    starting = house.submit(nodes=1, max_retries=1)
    until(lambda: house.fired("agent.spawn.before"))
    for job in (retried, failing, starting):
        kill_one_agent(house, job)
    kill_one_agent(house, stopping)
    since = time.time()
    seconds = {}
    for where, job, is_right in (
        ("running, to be retried", retried, lambda now: now["phase"] == "running" and now["attempt"] == 2),
        ("running, no retry", failing, lambda now: now["phase"] == "failed"),
        ("starting", starting, lambda now: now["phase"] == "running" and now["attempt"] == 2),
    ):
        until(lambda job=job, is_right=is_right: is_right(house.api.job(job)), what=where)
        seconds[where] = time.time() - since
    matrix.add_all("kill -9 agent", seconds)
    house.finish(stopping)  # its other replica is within its grace, and stubborn
    cast.until_phase(stopping, "cancelled")
    matrix.add("kill -9 agent", "stopping", "right")
    for job in (retried, starting):
        house.finish(job)
        cast.until_phase(job, "succeeded")
        check(house, job, attempts=2)
    check(house, failing, phases=("failed",), attempts=1)
    check(house, stopping, phases=("cancelled",), attempts=1)


@pytest.mark.long
def test_what_a_killed_agent_had_read_is_in_the_log(house, cast, matrix):
    """The web process is away, so that its lines pile up in the spool; then the agent dies."""
    job = house.submit(nodes=1)
    cast.until_phase(job, "running")
    pid, place = until(lambda: house.agents(job))[0]
    os.kill(house.pid("web"), signal.SIGSTOP)
    try:
        until(lambda: len(list((place / "spool").glob("*.batch"))) > 3)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not house.carriers(job))
        (claim,) = read_claims(house, job).values()
        left = len(list((place / "spool").glob("*.batch")))
    finally:
        os.kill(house.pid("web"), signal.SIGCONT)
    since = time.time()
    cast.until_phase(job, "failed")
    matrix.add_all("kill -9 agent", {f"its last {left} batches": time.time() - since})
    check(house, job, phases=("failed",))
    assert not list((place / "spool").glob("*.batch"))
    assert claim.lines - sum(line["rank"] >= 0 for line in house.api.lines(job)) in (0, 1)
