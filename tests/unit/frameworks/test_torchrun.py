"""torchrun jobs with a master of its own: which roles they become, and what each node finds in its environment."""

import shlex
from dataclasses import replace

import pytest

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.clusters import replica_file
from jobs.clusters.kubernetes.build import manifests
from jobs.core.plan import Host, Index, Plan, slots_of, world_size
from jobs.core.spec import JobSpec, parse
from jobs.core.verdict import ReplicaSeen, ReplicaState, verdict
from jobs.frameworks import torchrun
from queues.shape import ReplicaShape
from tests.support.kube_site import site_of

SITE = site_of()
SENT = {"command": "torchrun train.py", "nodes": 3, "nproc_per_node": 4}
MASTER = {"master_cpu": "2", "master_memory": "8Gi"}


def resolved(**sent) -> JobSpec:
    return frameworks.check(parse(sent, options=frameworks.OPTIONS), frozenset(sent))


def a_plan(**sent) -> Plan:
    return Plan("7-abc", 1, torchrun.roles(resolved(**{**SENT, **sent})), "torchrun", resource="gpu")


def seen(role: str, state: ReplicaState, index: int = 0) -> ReplicaSeen:
    return ReplicaSeen(role, index, state)


def limits(plan: Plan) -> dict[str, dict[str, str]]:
    """The limits of each role's container."""
    made = {role.name: manifests.pod(plan, role, 0, site=SITE, owner="o", agent="a") for role in plan.roles}
    return {name: one["spec"]["containers"][0]["resources"]["limits"] for name, one in made.items()}


def test_without_fields_of_the_master_all_replicas_are_workers():
    (worker,) = torchrun.roles(resolved(**SENT))
    assert (worker.name, worker.replicas, worker.processes, worker.shape) == ("worker", 3, 4, ReplicaShape())
    assert worker.env["PET_NODE_RANK"] == Index() and worker.env["PET_MASTER_ADDR"] == Host("worker", 0)


@pytest.mark.parametrize("field", [{"master_cpu": "2"}, {"master_memory": "8Gi"}, {"master_processes": 4}])
def test_any_field_of_the_master_makes_it_a_role_of_its_own(field):
    master, worker = torchrun.roles(resolved(**SENT, **field))
    assert (master.name, master.replicas, worker.name, worker.replicas) == ("master", 1, "worker", 2)
    assert (master.processes, worker.processes) == (4, 4)
    assert (master.first_rank, worker.first_rank, world_size([master, worker])) == (0, 4, 12)
    assert master.command == worker.command == ("torchrun", "train.py")


def test_each_role_has_the_shape_that_was_asked_for():
    assert limits(a_plan(**MASTER, worker_memory="64Gi")) == {
        "master": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "4"},
        "worker": {"memory": "64Gi", "nvidia.com/gpu": "4"},
    }
    assert limits(a_plan(worker_cpu="16")) == {"worker": {"cpu": "16", "nvidia.com/gpu": "4"}}
    assert limits(a_plan(nodes=4, min_nodes=2, worker_cpu="16")) == {"worker": {"cpu": "16", "nvidia.com/gpu": "4"}}


def test_a_master_with_fewer_processes_takes_fewer_devices_and_ranks():
    plan = a_plan(master_processes=1)
    master, worker = plan.roles
    assert (master.env["PET_NPROC_PER_NODE"], worker.env["PET_NPROC_PER_NODE"]) == ("1", "4")
    assert (slots_of(plan.roles), world_size(plan.roles), worker.first_rank) == (9, 9, 1)
    assert limits(plan)["master"] == {"nvidia.com/gpu": "1"}


def test_node_ranks_are_counted_from_the_master_in_pods_and_on_one_machine():
    plan = a_plan(**MASTER)
    pods = [manifests.environment(plan, role, index, site=SITE) for role, index in plan.replicas()]
    assert [env["PET_NODE_RANK"] for env in pods] == ["0", "1", "2"]
    assert {env["PET_NNODES"] for env in pods} == {"3"}
    assert {env["PET_MASTER_ADDR"] for env in pods} == {pods[0]["MUSTER_HOST"]}
    assert pods[0]["MUSTER_HOST"].startswith("7-abc-1-master-0.")
    files = [
        replica_file.describe(plan, role, index, ports={"rendezvous": 41000}, control_file="c")
        for role, index in plan.replicas()
    ]
    assert [file["env"]["PET_NODE_RANK"] for file in files] == ["0", "1", "2"]
    assert [file["hold_port"] for file in files] == [41000, None, None], "the master hosts the rendezvous"


def test_every_agent_is_told_how_long_the_others_may_take_to_come_up():
    plan = replace(a_plan(**MASTER), start_timeout_seconds=90)
    for role in plan.roles:
        local = replica_file.describe(plan, role, 0, ports={"rendezvous": 41000}, control_file="c")
        for told in (manifests.replica_config(plan, role, SITE), local):
            assert told["start_timeout_seconds"] == 90


def test_the_job_succeeds_once_the_master_and_every_worker_did():
    roles = [role.view() for role in torchrun.roles(resolved(**SENT, **MASTER))]
    running, done, failed = ReplicaState.RUNNING, ReplicaState.SUCCEEDED, ReplicaState.FAILED
    both = [seen("worker", done, 0), seen("worker", done, 1)]
    assert verdict(roles, [seen("master", done), *both]).outcome == "succeeded"
    assert verdict(roles, [seen("master", running), *both]).outcome == "open"
    assert verdict(roles, [seen("master", done), both[0], seen("worker", running, 1)]).outcome == "open"
    assert verdict(roles, [seen("master", done), both[0], seen("worker", failed, 1)]).outcome == "failed"
    assert verdict(roles, [seen("master", failed), *both]).outcome == "failed"


def test_the_number_of_processes_may_be_the_commands_own():
    master, worker = torchrun.roles(resolved(command="torchrun --nproc-per-node=4 train.py", nodes=2, **MASTER))
    assert (master.processes, worker.processes) == (4, 4)


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"nodes": 1}, "master_memory", "but nodes is 1; raise nodes, or use worker_memory"),
        ({"nodes": 1}, "master_cpu", "but nodes is 1; raise nodes, or use worker_cpu"),
        ({"nodes": 1, "master_processes": 2}, "master_processes", "or use nproc_per_node"),
        ({"min_nodes": 2}, "master_cpu", "an elastic job has no master of its own"),
        ({"command": "bash run.sh", "nodes": 1}, "master_cpu", "but nodes is 1"),
        ({"master_processes": 0}, "master_processes", "must be from 1 to 256"),
        ({"master_memory": "8 gigs"}, "master_memory", "such as 16Gi"),
        (
            {"command": "torchrun --nproc-per-node=4 x.py", "master_processes": 1},
            "command", "--nproc-per-node=4 applies to the master too, which has master_processes=1; remove the flag",
        ),
        ({"framework": "plain", "command": "python x.py"}, "master_cpu", "is a field of torchrun jobs only"),
    ],
)  # fmt: skip
def test_what_it_cannot_run_names_the_field_and_the_way_out(sent, field, words):
    with pytest.raises(InvalidSpec) as refused:
        resolved(**{**SENT, **MASTER, **sent})
    assert any(one.field == field and words in one.message for one in refused.value.problems), refused.value.problems


@pytest.mark.parametrize(
    ("command", "launched"),
    [
        ("python train.py", "torchrun train.py"),
        ("python3 -u train.py", "torchrun train.py"),
        (".venv/bin/python train.py --lr 1", ".venv/bin/python -m torch.distributed.run train.py --lr 1"),
        (
            "/opt/conda/envs/a/bin/python -m pkg.train",
            "/opt/conda/envs/a/bin/python -m torch.distributed.run -m pkg.train",
        ),
        ("python3.12 train.py", "python3.12 -m torch.distributed.run train.py"),
        ("python -O train.py", "python -O -m torch.distributed.run train.py"),
        ("python -X dev -W error train.py", "python -X dev -W error -m torch.distributed.run train.py"),
        ("python -u -Wignore -mpkg.train", "python -Wignore -m torch.distributed.run -m pkg.train"),
        ("python3.12 -m torch.distributed.run train.py", "python3.12 -m torch.distributed.run train.py"),
    ],
)
def test_the_interpreter_that_is_named_runs_torchrun(command, launched):
    assert " ".join(resolved(command=command, nproc_per_node=2).command) == launched
    assert " ".join(resolved(command=command, distributed=1).command) == launched


@pytest.mark.parametrize("command", ["python train.py", ".venv/bin/python -O -m pkg.train", "python -c 'print(1)'"])
def test_a_single_process_is_started_without_torchrun_and_has_no_rank_in_its_environment(command):
    plan = a_plan(command=command, nodes=1, nproc_per_node=1)
    (worker,) = plan.roles
    assert shlex.join(worker.command) == command and worker.is_rank and worker.slots == 1
    env = manifests.environment(plan, worker, 0, site=SITE)
    assert not [name for name in env if name in torchrun.RESERVED_ENV]


def test_a_single_process_of_torchrun_is_distributed():
    (worker,) = torchrun.roles(resolved(command="torchrun train.py"))
    assert not worker.is_rank and worker.env["PET_NPROC_PER_NODE"] == "1"


@pytest.mark.parametrize(
    ("command", "launched"),
    [
        ("torchrun --rdzv_backend=c10d --rdzv-endpoint=localhost:0 train.py", "torchrun train.py"),
        ("torchrun --rdzv_endpoint 127.0.0.1:29400 --rdzv_id 7 --nnodes=1 train.py", "torchrun --nnodes=1 train.py"),
        ("torchrun --node_rank=0 --master_addr=localhost --master_port 29501 train.py", "torchrun train.py"),
        ("torchrun --nproc_per_node=gpu train.py", "torchrun train.py"),
        ("torchrun --nproc-per-node auto -m pkg.train --node_rank=0", "torchrun -m pkg.train --node_rank=0"),
        ("torchrun --standalone --nproc_per_node=1 train.py", "torchrun --standalone --nproc_per_node=1 train.py"),
    ],
)
def test_flags_that_say_what_is_so_anyway_are_left_out(command, launched):
    assert " ".join(resolved(command=command).command) == launched


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("torchrun --nnodes=2 --rdzv_backend=c10d train.py", "Muster sets the rendezvous; remove the flag"),
        ("torchrun --rdzv_endpoint=other:29400 train.py", "Muster sets the rendezvous; remove the flag"),
        ("torchrun --node_rank=1 train.py", "Muster sets the rendezvous; remove the flag"),
        (
            "srun -n 8 python train.py --lr 1",
            "srun starts its own processes and does not know the other replicas; write torchrun train.py --lr 1",
        ),
        ("mpirun -np 4 python train.py", "write torchrun train.py: Muster places the replicas"),
        ("torchx run dist.ddp -j 2x4 --script train.py", "torchx run starts its own processes"),
        ("horovodrun -np 4 python train.py", "write torchrun train.py"),
    ],
)
def test_what_starts_processes_elsewhere_is_answered_with_what_to_write(command, words):
    with pytest.raises(InvalidSpec) as refused:
        resolved(command=command)
    assert any(words in one.message for one in refused.value.problems), refused.value.problems


def test_a_command_without_python_is_started_through_the_agent_as_well():
    spec = resolved(command="torchrun --no-python --nproc_per_node=2 ./train.sh --no-python", nproc_per_node=2)
    assert spec.command == ("torchrun", "--no-python", "--nproc_per_node=2", "./train.sh", "--no-python")
    (role,) = torchrun.roles(spec)
    assert role.command == ("torchrun", "--nproc_per_node=2", "./train.sh", "--no-python")
    assert role.env["MUSTER_NO_PYTHON"] == "1"
    assert "MUSTER_NO_PYTHON" not in torchrun.roles(resolved(command="torchrun train.py"))[0].env
