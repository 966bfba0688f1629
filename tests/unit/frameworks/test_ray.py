"""Ray jobs: which roles they become, and what each node finds in its environment, locally and in pods."""

import pytest

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.clusters import replica_file
from jobs.clusters.kubernetes.build import manifests
from jobs.core.plan import Plan, slots_of, world_size
from jobs.core.spec import JobSpec, parse
from jobs.core.verdict import ReplicaSeen, ReplicaState, verdict
from jobs.frameworks import ray
from tests.support.kube_site import site_of

SITE = site_of(IMAGE="registry.example/ray:2.60")
SENT = {"command": "python driver.py --lr 0.1", "framework": "ray"}


def resolved(**sent) -> JobSpec:
    return frameworks.check(parse(sent, options=frameworks.OPTIONS), frozenset(sent))


def a_plan(**sent) -> Plan:
    return Plan("7-abc", 1, ray.roles(resolved(**SENT, **sent)), "ray", resource="gpu")


def seen(role: str, state: ReplicaState, index: int = 0) -> ReplicaSeen:
    return ReplicaSeen(role, index, state)


def test_four_workers_are_four_beside_the_head():
    head, worker = ray.roles(resolved(**SENT, nodes=4, nproc_per_node=8))
    assert (head.replicas, worker.replicas) == (1, 4)
    assert head.command == ("python", "driver.py", "--lr", "0.1")
    assert (head.slots, worker.slots, slots_of([head, worker])) == (0, 8, 32)
    assert world_size([head, worker]) == 0, "Ray decides itself where processes with a rank run"


def test_head_and_workers_have_the_shapes_that_were_asked_for():
    plan = a_plan(
        nodes=2,
        nproc_per_node=4,
        head_cpu="4",
        head_memory="16Gi",
        worker_cpu="8",
        worker_memory="64Gi",
        head_devices=1,
    )
    head, worker = (
        manifests.pod(plan, role, 0, site=SITE, owner="o", agent="a")["spec"]["containers"][0]["resources"]["limits"]
        for role in plan.roles
    )
    assert (head["cpu"], head["memory"], head["nvidia.com/gpu"]) == ("4", "16Gi", "1")
    assert (worker["cpu"], worker["memory"], worker["nvidia.com/gpu"]) == ("8", "64Gi", "4")


def test_everybody_knows_where_the_head_is():
    plan = a_plan(nodes=2)
    pods = [manifests.environment(plan, role, index, site=SITE) for role, index in plan.replicas()]
    assert {env["RAY_ADDRESS"] for env in pods} == {pods[0]["RAY_ADDRESS"]}
    assert pods[0]["RAY_ADDRESS"].startswith("7-abc-1-head-0.") or "7-abc-1-head-0" in pods[0]["RAY_ADDRESS"]
    assert pods[0]["RAY_ADDRESS"].endswith(":6379")
    files = [
        replica_file.describe(plan, role, index, ports={"gcs": 43211}, control_file="c")
        for role, index in plan.replicas()
    ]
    assert {file["env"]["RAY_ADDRESS"] for file in files} == {"127.0.0.1:43211"}
    assert [file["hold_port"] for file in files] == [43211, None, None]


def test_the_drivers_end_is_the_jobs():
    roles = [role.view() for role in ray.roles(resolved(**SENT, nodes=1))]
    running, done, failed = ReplicaState.RUNNING, ReplicaState.SUCCEEDED, ReplicaState.FAILED
    assert verdict(roles, [seen("head", done), seen("worker", running)]).outcome == "succeeded"
    # a worker ends with its cluster: that is no failure of the job
    assert verdict(roles, [seen("head", done), seen("worker", failed)]).outcome == "succeeded"
    assert verdict(roles, [seen("head", failed), seen("worker", running)]).outcome == "failed"
    assert verdict(roles, [seen("head", running), seen("worker", failed)]).outcome == "failed"


def test_an_elastic_one_goes_on_with_its_fewest_workers():
    roles = [role.view() for role in ray.roles(resolved(**SENT, nodes=3, min_nodes=1))]
    workers = [seen("worker", ReplicaState.LOST, index) for index in (1, 2)]
    alive = [seen("head", ReplicaState.RUNNING), seen("worker", ReplicaState.RUNNING, 0)]
    assert verdict(roles, [*alive, *workers]).outcome == "open"
    assert verdict(roles, [alive[0], seen("worker", ReplicaState.LOST, 0), *workers]).outcome == "failed"


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"min_nodes": 3, "nodes": 2}, "min_nodes", "the most workers; lower it"),
        ({"env": {"RAY_ADDRESS": "auto"}}, "env.RAY_ADDRESS", "is set by Ray itself"),
        ({"head_memory": "16 gigs"}, "head_memory", "such as 16Gi"),
        ({"head_devices": -1}, "head_devices", "must be from 0 to 256"),
        ({"framework": "plain", "worker_cpu": "2"}, "worker_cpu", "is a field of ray and torchrun jobs only"),
        ({"framework": "torchrun", "head_cpu": "2"}, "head_cpu", "is a field of ray jobs only; set framework=ray"),
    ],
)
def test_what_it_cannot_run_names_the_field_and_the_way_out(sent, field, words):
    with pytest.raises(InvalidSpec) as refused:
        resolved(**{**SENT, **sent})
    assert any(one.field == field and words in one.message for one in refused.value.problems), refused.value.problems
