"""The scripted cluster plays each case of the corpus as the Kubernetes adapter would report it."""

import json

import pytest

from bench.verdicts.cases import corpus
from bench.verdicts.scripted import CASE, ScriptedCluster
from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import Plan, Role
from jobs.core.verdict import NO_IMAGE
from tests.support.builders import Clock

OF_CLUSTER = [case for case in corpus() if case.is_of_cluster]
REF = AttemptRef("7-abc", 1)
EXPECTED = [("worker", 0), ("worker", 1)]
LATER_SECONDS = 10  # later than the last step of any case


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(tmp_path, clock) -> ScriptedCluster:
    return ScriptedCluster(FOLDER=str(tmp_path), clock=clock.seconds)


def plan(case) -> Plan:
    role = Role("worker", 2, 1, ("sh", "-c", "true"))
    return Plan("7-abc", 1, (role,), env={CASE: case.name}, secrets={"worker-0": "a", "worker-1": "b"})


def last_steps(case) -> dict[str, object]:
    return {step.replica: step for step in case.pods}


@pytest.mark.parametrize("case", OF_CLUSTER, ids=lambda case: case.name)
def test_a_replica_reaches_the_state_its_case_describes(cluster, clock, case):
    cluster.apply(plan(case))
    clock.advance(LATER_SECONDS)
    seen = {f"{one.role}-{one.index}": one for one in cluster.observe(REF, EXPECTED).replicas}
    for replica, one in seen.items():
        step = last_steps(case).get(replica)
        if step is None:
            assert one.state == "running"
        elif step.is_gone:
            assert one.state == "absent"
        elif one.reason.startswith(NO_IMAGE):
            assert one.state == "failed", "that is proof, whatever the pod's phase"
        else:
            assert one.state == step.status["phase"].lower()
            is_silent = case.label.kinds in (("start_timeout",), ("signal",))  # only an exit code, no reason
            assert one.reason or is_silent, "Kubernetes' words reach the replica"


@pytest.mark.parametrize("case", OF_CLUSTER, ids=lambda case: case.name)
def test_no_replica_is_alive_after_a_delete(cluster, clock, case):
    cluster.apply(plan(case))
    clock.advance(LATER_SECONDS)
    cluster.delete(REF, 3)
    assert not [one for one in cluster.observe(REF, EXPECTED).replicas if one.is_alive]


def test_another_process_sees_changes_through_the_folder(tmp_path, clock):
    told = {"run": "7-abc", "created": clock.seconds(), "after_seconds": [0.0, 2.0]}
    (tmp_path / "7-abc.1.json").write_text(json.dumps(told))
    news = ScriptedCluster(FOLDER=str(tmp_path), clock=clock.seconds).changes()
    assert [next(news), next(news)] == ["7-abc", ""]
    clock.advance(1)
    assert next(news) == ""
    clock.advance(1)
    assert [next(news), next(news)] == ["7-abc", ""]
