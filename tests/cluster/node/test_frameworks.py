"""The contract of every framework (tests/support/framework_jobs.py) on real pods."""

import pytest

from tests.support import framework_jobs
from tests.support.framework_jobs import CASES, EVERY_REPLICA

# tests/system/stack shows the same with processes of this machine; here are repetitions of it.
GUARDS = ("agent/frameworks", "jobs/frameworks", "jobs/clusters/kubernetes/build")
ROUNDS = 30
BESIDE = ("ray", "monarch", "torchrun")


@pytest.mark.full
@pytest.mark.parametrize("framework", CASES)
def test_each_line_of_each_replica_arrives_once(pods, framework):
    framework_jobs.says_each_line_once(pods, framework)


@pytest.mark.soak(guards=GUARDS)
@pytest.mark.parametrize("framework", CASES)
def test_it_is_suspended_and_resumed(pods, framework):
    framework_jobs.goes_on_after_a_suspension(pods, framework)


@pytest.mark.soak(guards=GUARDS)
@pytest.mark.parametrize(("framework", "replica"), EVERY_REPLICA)
def test_a_killed_replica_of_each_role_is_named(pods, framework, replica):
    framework_jobs.names_the_replica_that_was_killed(pods, framework, replica)


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=pytest.mark.soak(guards=GUARDS, repeats=number > 0)) for number in range(ROUNDS)],
)
def test_jobs_of_all_frameworks_run_beside_each_other_on_one_node(pods, number):
    jobs = [framework_jobs.start(pods, name, nodes=1) for name in BESIDE]
    for job in jobs:
        framework_jobs.finish(pods, job)
