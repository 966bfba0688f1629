"""Monarch jobs: which roles they become, how a script finds their hosts, and what contradicts the job."""

import pytest

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.clusters import replica_file
from jobs.clusters.kubernetes.build import labels, manifests
from jobs.core.plan import Plan, slots_of, world_size
from jobs.core.spec import JobSpec, parse
from jobs.core.verdict import ReplicaSeen, ReplicaState, verdict
from jobs.frameworks import monarch
from tests.support.kube_site import site_of

SITE = site_of(IMAGE="registry.example/monarch:0.7", NETWORK_POLICY=True)
SENT = {"command": "python kubernetes_ddp.py", "framework": "monarch"}


def resolved(**sent) -> JobSpec:
    sent = {**SENT, **sent}
    return frameworks.check(parse(sent, options=frameworks.OPTIONS), frozenset(sent))


def a_plan(**sent) -> Plan:
    return Plan("7-abc", 1, monarch.roles(resolved(**sent)), "monarch", resource="gpu")


def pods(plan: Plan) -> dict:
    return {
        (role.name, index): manifests.pod(plan, role, index, site=SITE, owner="o", agent="a")
        for role, index in plan.replicas()
    }


def refusal(**sent) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        resolved(**sent)
    return {problem.field: problem.message for problem in caught.value.problems}


def test_hosts_are_ranks_and_quota_and_the_controller_is_neither():
    mesh, controller = monarch.roles(resolved(nodes=2, nproc_per_node=4, mesh_name="ddpmesh"))
    assert (mesh.name, mesh.replicas, mesh.processes, controller.replicas) == ("ddpmesh", 2, 4, 1)
    assert controller.command == ("python", "kubernetes_ddp.py")
    assert (slots_of([mesh, controller]), world_size([mesh, controller])) == (8, 8)


def test_monarchs_default_selector_finds_each_host_with_its_number():
    found = pods(a_plan(nodes=2, mesh_name="ddpmesh"))
    for index in range(2):
        said = found["ddpmesh", index]["metadata"]["labels"]
        assert said["app.kubernetes.io/name"] == "monarch-worker"
        assert said["monarch.pytorch.org/mesh-name"] == "ddpmesh"
        assert said["apps.kubernetes.io/pod-index"] == str(index)
        assert labels.replica_of(said), "Muster's own are there too"
        (container,) = found["ddpmesh", index]["spec"]["containers"]
        assert {"name": "MONARCH_PORT", "value": "26600"} in container["env"]
    assert "app.kubernetes.io/name" not in found["controller", 0]["metadata"]["labels"]


def test_only_the_controller_may_read_pods():
    found = pods(a_plan())
    assert found["controller", 0]["spec"]["serviceAccountName"] == "muster-reader"
    assert found["controller", 0]["spec"]["automountServiceAccountToken"] is True
    assert "serviceAccountName" not in found["mesh", 0]["spec"]
    assert found["mesh", 0]["spec"]["automountServiceAccountToken"] is False


def test_a_network_policy_lets_the_controller_reach_the_api_server():
    def ports(plan: Plan) -> set[int]:
        rules = manifests.network_policy(plan, SITE, owner="o")["spec"]["egress"]
        return {port["port"] for rule in rules if "to" not in rule for port in rule["ports"]}

    assert 6443 in ports(a_plan())
    plain = Plan(
        "7-abc",
        1,
        frameworks.get("plain").roles(parse({"command": "true", "framework": "plain"}, options=frameworks.OPTIONS)),
    )
    assert 6443 not in ports(plain)


def test_further_meshes_have_hosts_and_ranks_of_their_own():
    text = a_plan(nodes=2, nproc_per_node=2, mesh_name="trainers", more_meshes="generators=3  evaluators=1")
    plan = a_plan(nodes=2, nproc_per_node=2, mesh_name="trainers", more_meshes=["generators=3", "evaluators=1"])
    assert text.roles == plan.roles, "as the document writes it"
    assert [(role.name, role.replicas, role.first_rank) for role in plan.roles[:3]] == [
        ("trainers", 2, 0), ("generators", 3, 4), ("evaluators", 1, 10),
    ]  # fmt: skip
    env = manifests.environment(plan, plan.roles[0], 0, site=SITE)
    assert env["MUSTER_MONARCH_MESHES"] == "trainers=2 generators=3 evaluators=1"


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"mesh_name": "7th"}, "mesh_name", "Monarch allows lowercase letters and digits"),
        ({"mesh_name": "a" * 25}, "mesh_name", "too long"),
        ({"mesh_name": "gen-erators", "more_meshes": ["generators=1"]}, "mesh_name", "two meshes have this name"),
        ({"mesh_name": "controller"}, "mesh_name", "choose another name"),
        ({"more_meshes": ["mesh=1"]}, "mesh_name", "two meshes have this name"),
        ({"more_meshes": ["generators"]}, "more_meshes", "such as generators=2"),
        ({"more_meshes": ["generators=0"]}, "more_meshes", "from 1 to 4096"),
        ({"more_meshes": ["generators=" + "9" * 5000]}, "more_meshes", "from 1 to 4096"),
        ({"min_nodes": 1, "nodes": 2}, "min_nodes", "cannot be elastic"),
        ({"command": "python a.py --num_hosts 3", "nodes": 2}, "command", "the job has nodes=2"),
        ({"command": "python a.py --gpus_per_host=4"}, "command", "the job has nproc_per_node=1"),
        ({"command": "python a.py --mesh_name=ddpmesh"}, "command", "the job has mesh_name=mesh"),
        ({"env": {"MONARCH_PORT": "1"}}, "env.MONARCH_PORT", "set by Monarch itself"),
    ],
)
def test_what_cannot_run_names_the_field_and_the_remedy(sent, field, words):
    assert words in refusal(**sent)[field]


def test_options_that_agree_with_the_job_are_accepted():
    spec = resolved(
        command="python a.py --num_hosts=2 --gpus-per-host 4 --mesh_name ddpmesh",
        nodes=2,
        nproc_per_node=4,
        mesh_name="ddpmesh",
    )
    assert spec.command[-1] == "ddpmesh"


def test_the_controllers_end_decides_and_a_lost_host_fails_the_attempt():
    views = [role.view() for role in monarch.roles(resolved(nodes=2))]
    running = [ReplicaSeen("mesh", index, ReplicaState.RUNNING) for index in range(2)]
    done = verdict(views, [*running, ReplicaSeen("controller", 0, ReplicaState.SUCCEEDED)])
    assert done.outcome == "succeeded"
    lost = [ReplicaSeen("mesh", 0, ReplicaState.LOST), running[1], ReplicaSeen("controller", 0, ReplicaState.RUNNING)]
    assert verdict(views, lost).outcome == "failed"


def test_a_machine_of_several_teams_is_asked_about_hosts_that_run_what_they_are_sent():
    assert monarch.takes_code(resolved()) == ("framework", "monarch")


def test_a_local_replica_is_told_the_same_numbers():
    plan = a_plan(nodes=2)
    files = [
        replica_file.describe(plan, role, index, ports={"monarch": 43211}, control_file="c")
        for role, index in plan.replicas()
    ]
    for file in files:
        assert file["env"]["MUSTER_MONARCH_CONTROLLER"] == "127.0.0.1"
        assert file["env"]["MONARCH_PORT"] == "43211" and file["env"]["MUSTER_MONARCH_MESHES"] == "mesh=2"


def test_a_queue_or_a_job_may_leave_the_hosts_to_an_operator():
    mesh, controller = monarch.roles(resolved(mesh_launcher="MonarchMesh"))
    assert (mesh.operator, controller.operator) == ("MonarchMesh", "")
    assert [role.operator for role in monarch.roles(resolved(mesh_launcher="pods"))] == ["", ""]
    assert refusal(mesh_launcher="helm") == {"mesh_launcher": "is not understood; use pods or MonarchMesh"}


def test_a_name_that_monarch_does_not_allow_is_mapped_to_the_nearest():
    spec = resolved(mesh_name="Train-ers", more_meshes=["gener_ators=2"])
    assert monarch.meshes(spec) == {"trainers": 1, "generators": 2}
    assert refusal(mesh_name="train-ers", command="python a.py --mesh_name train-ers") == {
        "command": "the job has mesh_name=trainers; change one of the two, or leave --mesh_name out"
    }
