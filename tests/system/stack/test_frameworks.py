"""The contract of every framework (tests/support/framework_jobs.py) with processes of this machine."""

import itertools

import psutil
import pytest

from tests.support import framework_jobs
from tests.support.framework_jobs import CASES, EVERY_REPLICA

# tests/unit/clusters has the choice of ports; these are races for them.
GUARDS = ("jobs/clusters/local", "embedded/ports.py", "agent/frameworks")
ROUNDS = 30
BESIDE = ("ray", "monarch", "torchrun")
Address = tuple[str, int]


@pytest.mark.ci(guards=("agent", "jobs/frameworks", "jobs/clusters/local", "jobs/ingest", "jobs/logs"))
@pytest.mark.parametrize("framework", CASES)
def test_each_line_of_each_replica_arrives_once(muster, framework):
    framework_jobs.says_each_line_once(muster, framework)


@pytest.mark.full
@pytest.mark.parametrize("framework", CASES)
def test_it_is_suspended_and_resumed(muster, framework):
    framework_jobs.goes_on_after_a_suspension(muster, framework)


@pytest.mark.soak(guards=("agent", "jobs/frameworks", "jobs/clusters/local", "jobs/core"))
@pytest.mark.parametrize(("framework", "replica"), EVERY_REPLICA)
def test_a_killed_replica_of_each_role_is_named(muster, framework, replica):
    framework_jobs.names_the_replica_that_was_killed(muster, framework, replica)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(0, marks=pytest.mark.full),
        *(pytest.param(number, marks=pytest.mark.soak(guards=GUARDS, repeats=True)) for number in range(1, ROUNDS)),
    ],
)
def test_jobs_of_all_frameworks_run_beside_each_other_without_a_port_in_common(muster, number):
    jobs = [framework_jobs.start(muster, name, nodes=1) for name in BESIDE]
    opened = [listening(muster.processes(job)) for job in jobs]
    assert all(opened), opened
    for one, other in itertools.combinations(opened, 2):
        assert not [(mine, theirs) for mine in one for theirs in other if collide(mine, theirs)]
    for job in jobs:
        framework_jobs.finish(muster, job)


def listening(pids: list[int]) -> set[Address]:
    """Where these processes listen: address and port, or the name of a Unix socket and 0."""
    found: set[Address] = set()
    for pid in pids:
        try:
            sockets = psutil.Process(pid).net_connections(kind="all")
        except psutil.NoSuchProcess:
            continue
        found |= {(one.laddr.ip, one.laddr.port) for one in sockets if one.status == psutil.CONN_LISTEN}
        found |= {(one.laddr, 0) for one in sockets if isinstance(one.laddr, str) and one.laddr}
    return found


def collide(mine: Address, theirs: Address) -> bool:
    is_everywhere = {"0.0.0.0", "::"} & {mine[0], theirs[0]}
    return mine[1] == theirs[1] and (mine[0] == theirs[0] or (mine[1] > 0 and bool(is_everywhere)))
