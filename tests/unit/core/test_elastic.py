"""Elastic jobs: their requested sizes, and the environment of torchrun in a cluster and on one machine."""

import pytest

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.clusters import replica_file
from jobs.clusters.kubernetes.build import manifests
from jobs.core.plan import Plan
from jobs.core.spec import JobSpec, parse
from jobs.frameworks import torchrun
from tests.support.kube_site import site_of

SITE = site_of()


def resolved(**sent):
    return frameworks.check(parse(sent), frozenset(sent))


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"command": "torchrun --nnodes=2:4 train.py"}, (2, 4)),
        ({"command": "torchrun --nnodes 2:4 train.py", "nodes": 4}, (2, 4)),
        ({"command": "torchrun --nnodes=2:4 train.py", "nodes": 4, "min_nodes": 2}, (2, 4)),
        ({"command": "torchrun train.py", "nodes": 4, "min_nodes": 1}, (1, 4)),
        ({"command": "torchrun --nnodes=3:3 train.py"}, (3, 3)),
        ({"command": "torchrun --nnodes=3 train.py"}, (None, 3)),
        ({"command": "torchrun train.py", "nodes": 3}, (None, 3)),
    ],
)
def test_minimum_and_maximum_nodes_come_from_the_fields_or_the_command(sent, expected):
    spec = resolved(**sent)
    assert (spec.min_nodes, spec.nodes) == expected
    assert JobSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"nodes": 3, "command": "torchrun --nnodes=2:4 x.py"}, "command", "--nnodes=2:4 contradicts min_nodes=2 and nodes=3"),
        ({"nodes": 4, "min_nodes": 3, "command": "torchrun --nnodes=2:4 x.py"}, "command", "contradicts min_nodes=3 and nodes=4"),
        ({"nodes": 4, "min_nodes": 2, "command": "torchrun --nnodes=4 x.py"}, "command", "--nnodes=4 contradicts min_nodes=2"),
        ({"command": "torchrun --nnodes=4:2 x.py"}, "min_nodes", "is more than nodes=2"),
        ({"command": "torchrun --nnodes=0:2 x.py"}, "command", "--nnodes=0:2 contradicts nodes=1"),
        ({"nodes": 2, "min_nodes": 3, "command": "bash run.sh"}, "min_nodes", "is more than nodes=2"),
        ({"nodes": 2, "min_nodes": 0, "command": "torchrun x.py"}, "min_nodes", "from 1 to 4096, not 0"),
        ({"nodes": 2, "min_nodes": 1, "command": "torchrun --rdzv-endpoint=a:1 x.py"}, "command", "Muster sets the rendezvous"),
        ({"nodes": 2, "min_nodes": 1, "command": "torchrun --rdzv-backend=etcd-v2 x.py"}, "command", "no etcd is needed: remove the flag"),
        ({"nodes": 2, "command": "torchrun --rdzv_backend etcd x.py"}, "command", "set min_nodes for an elastic one (c10d)"),
        ({"nodes": 2, "min_nodes": 1, "command": "torchrun --local-addr=a x.py"}, "command", "Muster sets the rendezvous"),
        ({"nodes": 2, "min_nodes": 1, "command": "torchrun x.py", "env": {"PET_RDZV_CONF": "x=1"}}, "env.PET_RDZV_CONF", "elastic"),
    ],
)  # fmt: skip
def test_a_contradiction_names_both_values(sent, field, words):
    with pytest.raises(InvalidSpec) as refused:
        resolved(**sent)
    assert any(one.field == field and words in one.message for one in refused.value.problems), refused.value.problems


def a_plan(**sent) -> Plan:
    return Plan("42-abc", 3, torchrun.roles(resolved(**{"command": "torchrun train.py", "nodes": 4, **sent})))


def told(plan: Plan, index: int) -> tuple[dict, dict]:
    """The environment of torchrun: (in a pod, in a process on this machine)."""
    role = plan.roles[0]
    pod = manifests.environment(plan, role, index, site=SITE)
    local = replica_file.describe(plan, role, index, ports={"rendezvous": 41000}, control_file="x")
    return tuple(
        {name: value for name, value in env.items() if name.startswith(("PET_", "TORCH_"))}
        for env in (pod, local["env"])
    )


def test_only_the_first_replica_of_an_elastic_job_hosts_the_rendezvous():
    plan = a_plan(min_nodes=2, nproc_per_node=8, start_timeout_seconds=300)
    shared = {"PET_NNODES": "2:4", "PET_NPROC_PER_NODE": "8", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "42-abc-3",
              "PET_MAX_RESTARTS": "3", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # fmt: skip
    for index, is_host in ((0, "true"), (1, "false"), (3, "false")):
        pod, local = told(plan, index)
        assert pod == {
            **shared,
            "PET_RDZV_ENDPOINT": "42-abc-3-worker-0.m-42-abc-3.muster-jobs.svc:29500",
            "PET_LOCAL_ADDR": f"42-abc-3-worker-{index}.m-42-abc-3.muster-jobs.svc",
            "PET_RDZV_CONF": f"is_host={is_host},read_timeout=300",
        }
        assert local == {
            **shared,
            "PET_RDZV_ENDPOINT": "127.0.0.1:41000",
            "PET_LOCAL_ADDR": "127.0.0.1",
            "PET_RDZV_CONF": f"is_host={is_host},read_timeout=300",
        }


def test_the_first_replica_holds_the_port_of_the_rendezvous():
    plan = a_plan(min_nodes=2)
    assert replica_file.ports_needed(plan) == {"rendezvous": ("worker", 0)}
    held = [
        replica_file.describe(plan, plan.roles[0], index, ports={"rendezvous": 41000}, control_file="x")["hold_port"]
        for index in range(2)
    ]
    assert held == [41000, None]


def test_a_job_that_is_not_elastic_keeps_its_static_rendezvous():
    pod, _ = told(a_plan(), 1)
    assert pod == {
        "PET_NNODES": "4", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "1", "PET_MAX_RESTARTS": "0",
        "PET_MASTER_ADDR": "42-abc-3-worker-0.m-42-abc-3.muster-jobs.svc", "PET_MASTER_PORT": "29500",
    }  # fmt: skip


@pytest.mark.parametrize(("min_nodes", "is_elastic"), [(2, True), (None, False)])
def test_agents_of_elastic_jobs_number_ranks_by_their_position(min_nodes, is_elastic):
    plan = a_plan(min_nodes=min_nodes)
    local = replica_file.describe(plan, plan.roles[0], 1, ports={"rendezvous": 1}, control_file="x")
    assert (local["is_elastic"], manifests.replica_config(plan, plan.roles[0], SITE)["is_elastic"]) == (
        is_elastic,
        is_elastic,
    )
