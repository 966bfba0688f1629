"""plain jobs: which roles they become, and what each process finds in its environment, locally and in pods."""

import pytest

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.clusters import replica_file
from jobs.clusters.kubernetes.build import manifests
from jobs.core.plan import Plan, slots_of, world_size
from jobs.core.spec import JobSpec, parse
from jobs.frameworks import plain
from tests.support.kube_site import site_of

SITE = site_of()
SENT = {"command": "python train.py", "framework": "plain"}
HELPED = {**SENT, "nodes": 2, "nproc_per_node": 4, "helper_command": "python serve.py --port 80", "helpers": 3}


def resolved(**sent) -> JobSpec:
    return frameworks.check(parse(sent, options=frameworks.OPTIONS), frozenset(sent))


def a_plan(**sent) -> Plan:
    return Plan("7-abc", 1, plain.roles(resolved(**sent)), resource="gpu", shared_folder="/shared")


def in_pods(plan: Plan) -> dict[str, dict[str, str]]:
    return {
        f"{role.name}-{index}": manifests.environment(plan, role, index, site=SITE) for role, index in plan.replicas()
    }


def test_each_worker_is_one_rank_whatever_its_devices():
    (worker,) = plain.roles(resolved(**SENT, nodes=3, nproc_per_node=8))
    assert (worker.replicas, worker.processes, worker.slots, worker.is_rank) == (3, 1, 8, True)
    assert (world_size([worker]), slots_of([worker])) == (3, 24)


def test_helpers_are_a_role_of_their_own_numbered_behind_the_workers():
    worker, helper = plain.roles(resolved(**HELPED))
    assert (helper.command, helper.replicas, helper.slots) == (("python", "serve.py", "--port", "80"), 3, 0)
    assert (worker.first_rank, helper.first_rank) == (0, 2)
    assert worker.completes and not helper.completes and helper.essential
    assert (world_size([worker, helper]), slots_of([worker, helper])) == (5, 8)


def test_a_helper_has_the_shape_that_was_asked_for():
    plan = a_plan(**HELPED, helper_devices=1, helper_cpu="500m", helper_memory="8Gi")
    asked = {
        role.name: manifests.pod(plan, role, 0, site=SITE, owner="o", agent="a")["spec"]["containers"][0]["resources"]
        for role in plan.roles
    }
    assert asked["worker"]["limits"]["nvidia.com/gpu"] == "4" and "cpu" not in asked["worker"]["limits"]
    assert asked["helper"]["requests"] == {
        **asked["helper"]["requests"],
        "cpu": "500m",
        "memory": "8Gi",
        "nvidia.com/gpu": "1",
    }
    assert asked["helper"]["limits"]["memory"] == "8Gi"


def test_a_helper_without_devices_asks_for_none():
    plan = a_plan(**HELPED)
    pod = manifests.pod(plan, plan.roles[1], 0, site=SITE, owner="o", agent="a")
    assert "nvidia.com/gpu" not in pod["spec"]["containers"][0]["resources"].get("limits", {})


def test_every_worker_knows_where_the_first_one_is():
    env = in_pods(a_plan(**HELPED))
    first = env["worker-0"]["MASTER_ADDR"]
    assert "7-abc-1-worker-0" in first
    for index in (0, 1):
        mine = env[f"worker-{index}"]
        assert mine["RANK"] == mine["JAX_PROCESS_ID"] == str(index)
        assert mine["WORLD_SIZE"] == mine["JAX_NUM_PROCESSES"] == "2"
        assert mine["JAX_COORDINATOR_ADDRESS"] == f"{first}:29500"
    assert "RANK" not in env["helper-2"] and env["helper-2"]["HELPER_INDEX"] == "2"


def test_a_single_process_is_not_told_that_it_is_distributed():
    env = in_pods(a_plan(**SENT))["worker-0"]
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"} & set(env)
    assert env["JAX_NUM_PROCESSES"] == "1"
    for more in ({"distributed": 1}, {"helper_command": "python serve.py"}):
        assert in_pods(a_plan(**SENT, **more))["worker-0"]["WORLD_SIZE"] == "1"


def test_a_job_from_before_that_was_a_choice_keeps_its_variables():
    (worker,) = plain.roles(JobSpec(("python", "train.py"), framework="plain"))
    assert {"RANK", "WORLD_SIZE"} <= set(worker.env)


def test_on_one_machine_they_meet_at_a_free_port():
    plan = a_plan(**HELPED)
    files = {
        f"{role.name}-{index}": replica_file.describe(plan, role, index, ports={"rendezvous": 43211}, control_file="c")
        for role, index in plan.replicas()
    }
    assert files["worker-1"]["env"]["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:43211"
    assert files["helper-0"]["env"]["MASTER_PORT"] == "43211"
    assert [name for name, file in files.items() if file["hold_port"]] == ["worker-0"]
    assert {name: file["first_rank"] for name, file in files.items() if name.endswith("-1")} == {
        "worker-1": 0,
        "helper-1": 2,
    }
    assert all(file["is_rank"] for file in files.values())


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"min_nodes": 1, "nodes": 2}, "min_nodes", "use torchrun"),
        ({"helpers": 2}, "helpers", "needs helper_command"),
        ({"helper_command": ""}, "helper_command", "is missing"),
        ({"helper_command": "serve | tee log"}, "helper_command", "only a shell understands"),
        ({"helper_command": "serve", "helpers": 0}, "helpers", "must be from 1 to 4096, not 0"),
        ({"helper_command": "serve", "helper_memory": "8 gigs"}, "helper_memory", "such as 8Gi"),
        ({"helper_command": "serve", "helper_cpu": 2}, "helper_cpu", "such as 2 or 500m"),
        ({"env": {"RANK": "3"}}, "env.RANK", "is set by a plain job itself"),
        ({"framework": "torchrun", "helpers": 2}, "helpers", "is a field of plain jobs only; set framework=plain"),
    ],
)
def test_what_it_cannot_run_names_the_field_and_the_way_out(sent, field, words):
    with pytest.raises(InvalidSpec) as refused:
        resolved(**{**SENT, **sent})
    assert any(one.field == field and words in one.message for one in refused.value.problems), refused.value.problems


def test_its_description_is_stored_and_read_back():
    spec = resolved(**HELPED)
    assert JobSpec.from_json(spec.to_json()) == spec
    assert "options" not in resolved(**SENT, nodes=2).to_json()
