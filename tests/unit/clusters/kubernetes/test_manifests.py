"""From a plan to Kubernetes objects: whole objects against golden files, and properties of every plan."""

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Refused
from jobs import frameworks
from jobs.clusters.kubernetes.build import labels, manifests
from jobs.clusters.kubernetes.build.site import Site
from jobs.core import pod_template
from jobs.core.plan import Claim, Host, Index, Plan, Port, Role, SecretFiles, StartFrom
from jobs.core.spec import parse
from jobs.frameworks import OPTIONS, torchrun
from queues.shape import ReplicaShape, of_resources
from tests.support.kube_site import site_of

GOLDEN = Path(__file__).with_name("golden")
SITE = site_of()
GPUS = replace(SITE, devices={"gpu": "nvidia.com/gpu"})
FULL = site_of(
    CONTROL_CA="-----BEGIN CERTIFICATE-----\n",
    JOB_CLAIM="scratch",
    CLAIMS={"nlp/datasets": "nlp-data", "common": "common-data", "vision/models": "not-theirs"},
    REQUESTS={"cpu": "8"},
    LIMITS={"memory": "64Gi"},
    NODE_SELECTOR={"pool": "a100"},
    TOLERATIONS=[{"key": "gpu", "operator": "Exists"}],
    PULL_SECRETS=["registry"],
    SCHEDULER="gang",
    USER=4000,
    MEMORY_LIMIT="8Gi",
)
ENV = {"PET_NODE_RANK": Index(), "PET_MASTER_ADDR": Host("worker", 0), "PET_MASTER_PORT": Port("rendezvous", 29500)}


def a_plan(**changes) -> Plan:
    role = Role("worker", 2, 4, ("torchrun", "train.py"), ENV)
    tokens = {"worker-0": "token of 0", "worker-1": "token of 1"}
    return replace(Plan("42-abcdef", 3, (role,), env={"API_KEY": "hidden"}, secrets=tokens, team="nlp"), **changes)


SHAPED = Role(
    "worker", 2, 4, ("torchrun", "train.py"),
    shape=replace(
        of_resources(cpu="16", memory="128Gi"), image="registry.example/mine:2", shm="32Gi", node_selector={"zone": "z1"},
        tolerations=({"key": "spot", "operator": "Exists"},), priority_class="batch", labels={"cost-centre": "42"},
        annotations={"example.org/note": "mine"}, working_dir="examples",
    ),
)  # fmt: skip


ON_A_RACK = Role(
    "worker", 2, 4, ("torchrun", "train.py"), shape=ReplicaShape(topology={"require": "example.org/block", "prefer": "example.org/rack"})
)  # fmt: skip


def with_job_storage() -> Plan:
    own = {"team": "nlp", "run": "42-abcdef", "job": "gpt-small"}
    claims = {
        "workspace": Claim("muster-job-42-abcdef-workspace", "80Gi", volume="workspace", **own),
        "checkpoints": Claim("muster-job-42-abcdef-checkpoints", "400Gi", "fast", volume="checkpoints", **own),
    }
    shared = {"datasets": Claim("muster-volume-nlp.datasets", "1Ti", volume="datasets", team="nlp")}
    return a_plan(job_claims=claims, claims=shared, volumes={"datasets": "/data"}, read_only=frozenset({"datasets"}))


def with_team_secrets() -> Plan:
    files = {"gcp": SecretFiles({"key.json": "{}", "a.pem": "A"}), "ssh": SecretFiles({"id": "B"}, "/keys")}
    return a_plan(secret_files=files, docker_config='{"auths": {}}')


def with_a_template() -> Plan:
    document = {
        "node": {"cpus": "64", "memory": "512Gi", "resource": "nvidia.com/mig-1g.10gb"}, "shm_per_gpu": "8Gi",
        "pods": {
            "service_account": "train", "scheduler": "gang", "host_network": True,
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "noisy"}}}
            ]}},
            "security": {"runAsUser": 4000, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}},
            "init_containers": [{"name": "warm", "image": "warm:1", "volumeMounts": [{"name": "cache", "mountPath": "/c"}]}],
            "sidecars": [{"name": "proxy", "image": "proxy:1", "securityContext": {"readOnlyRootFilesystem": True}}],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}],
            "mounts": [{"name": "cache", "mountPath": "/cache", "readOnly": True}],
        },
    }  # fmt: skip
    spec = parse({"command": "torchrun train.py", "nodes": 2, "nproc_per_node": 8}, options=OPTIONS)
    roles = frameworks.roles(spec, below=lambda role: pod_template.layer(document, role, gpus_per_node=8))
    return a_plan(roles=roles, resource="gpu", node_slots=8, token_accounts=frozenset({"train"}))


def with_a_head() -> Plan:
    """A Ray job whose workers take a whole node each."""
    sent = {"command": "python train.py", "framework": "ray", "nodes": 2, "nproc_per_node": 4}
    return a_plan(roles=frameworks.roles(parse(sent, options=OPTIONS)), framework="ray", resource="gpu", node_slots=4)


def with_a_master() -> Plan:
    """A torchrun job with a master of its own shape and two workers."""
    sent = {"command": "torchrun train.py", "nodes": 3, "nproc_per_node": 4, "master_processes": 1,
            "master_cpu": "2", "master_memory": "8Gi", "worker_memory": "64Gi"}  # fmt: skip
    return a_plan(roles=torchrun.roles(parse(sent, options=OPTIONS)), framework="torchrun", resource="gpu")


def pod(plan: Plan, index: int = 1, site: Site = SITE, role: int = 0) -> manifests.Manifest:
    return manifests.pod(plan, plan.roles[role], index, site=site, owner="uid-1234-5678", agent="muster-agent-feed")


@pytest.mark.parametrize(
    "name, made",
    [
        ("service", lambda: manifests.service(a_plan())),
        (
            "headless-service",
            lambda: manifests.headless_service(a_plan(job="gpt-small", is_headless=True), owner="uid-1234-5678"),
        ),
        ("tombstone", lambda: manifests.tombstone("42-abcdef", 3)),
        (
            "network-policy",
            lambda: manifests.network_policy(a_plan(), replace(SITE, egress=("10.0.0.0/8",)), owner="uid-1234-5678"),
        ),
        ("pod-on-cpus", lambda: pod(a_plan(resource="cpu"))),
        ("pod-with-a-template", lambda: pod(with_a_template(), site=GPUS)),
        ("pod-with-job-storage", lambda: pod(with_job_storage())),
        ("pod-away-from-a-node", lambda: pod(a_plan(avoided_nodes=("node-7",)))),
        ("pod-off-excluded-nodes", lambda: pod(a_plan(excluded_nodes=("node-7", "node-8")))),
        ("pod-on-the-rack-of-the-others", lambda: pod(a_plan(roles=(ON_A_RACK,)))),
        ("pod-that-begins-from-a-job", lambda: pod(a_plan(start_from=StartFrom("41-fedcba", 3000)), site=FULL)),
        ("claim-of-a-job", lambda: manifests.claim(with_job_storage().job_claims["workspace"])),
        ("pod-with-team-secrets", lambda: pod(with_team_secrets())),
        ("secret-of-team-secrets", lambda: manifests.pull_secret(with_team_secrets(), owner="uid-1234-5678")),
        (
            "pod-with-everything",
            lambda: pod(a_plan(resource="gpu", volumes={"datasets": "/data", "common": ""}), site=FULL),
        ),
        ("pod-of-a-whole-node", lambda: pod(a_plan(resource="gpu", node_slots=4))),
        ("pod-of-a-whole-node-beside-a-head", lambda: pod(with_a_head(), 1, GPUS, role=1)),
        ("pod-with-names-for-people", lambda: pod(a_plan(job="gpt-small", user="ann@example.org"))),
        ("pod-with-a-shape-of-its-own", lambda: pod(a_plan(roles=(SHAPED,), resource="gpu"), site=FULL)),
        ("pod-of-a-master", lambda: pod(with_a_master(), 0, GPUS)),
        ("pod-beside-a-master", lambda: pod(with_a_master(), 1, GPUS, role=1)),
    ],
)
def test_objects_match_the_golden_files(name, made):
    path = GOLDEN / f"{name}.yaml"
    assert made() == yaml.safe_load(path.read_text())


def test_a_mesh_matches_the_golden_file():
    sent = {"command": "python3 train.py", "framework": "monarch", "nodes": 2, "nproc_per_node": 4,
            "mesh_name": "trainers", "mesh_launcher": "MonarchMesh", "host_cpu": "8"}  # fmt: skip
    roles = frameworks.get("monarch").roles(parse(sent, options=OPTIONS))
    plan = Plan("42-abcdef", 3, roles, framework="monarch", team="nlp", resource="gpu")
    made = manifests.mesh(
        plan, roles[0], site=GPUS, owner="uid-1234-5678", agent="muster-agent-feed", takes_template=True
    )
    assert made == yaml.safe_load((GOLDEN / "mesh.yaml").read_text())
    bare = manifests.mesh(
        plan, roles[0], site=GPUS, owner="uid-1234-5678", agent="muster-agent-feed", takes_template=False
    )
    assert bare["spec"]["podTemplate"] == made["spec"]["podTemplate"]["spec"]


def first_of_each_role(framework: str, **sent) -> list:
    """The pod of the first replica of each role of a job with two nodes and four GPUs on each."""
    given = {"command": "python3 train.py", "framework": framework, "nodes": 2, "nproc_per_node": 4, **sent}
    spec = frameworks.check(parse(given, options=OPTIONS), frozenset(given))
    roles = frameworks.get(framework).roles(spec)
    plan = Plan("42-abcdef", 3, roles, framework=framework, secrets={}, team="nlp", resource="gpu")
    return [pod(plan, 0, GPUS, role=number) for number in range(len(roles))]


@pytest.mark.parametrize(
    ("framework", "sent"),
    [
        ("plain", {"helper_command": ["python3", "serve.py"], "helper_memory": "8Gi"}),
        ("ray", {"head_cpu": "4", "worker_memory": "32Gi"}),
        ("monarch", {"mesh_name": "trainers", "more_meshes": ["generators=1"], "host_cpu": "8"}),
    ],
)
def test_the_pods_of_each_role_of_a_framework_match_the_golden_file(framework, sent):
    path = GOLDEN / f"{framework}.yaml"
    assert first_of_each_role(framework, **sent) == yaml.safe_load(path.read_text())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "http://192.0.2.7:8000",
            {"to": [{"ipBlock": {"cidr": "192.0.2.7/32"}}], "ports": [{"protocol": "TCP", "port": 8000}]},
        ),
        (
            "https://[2001:db8::1]",
            {"to": [{"ipBlock": {"cidr": "2001:db8::1/128"}}], "ports": [{"protocol": "TCP", "port": 443}]},
        ),
        ("http://muster", {"ports": [{"protocol": "TCP", "port": 80}]}),
    ],
)
def test_a_policy_lets_agents_reach_the_control_plane(url, expected):
    made = manifests.network_policy(a_plan(), replace(SITE, control_url=url), owner="u")
    assert made["spec"]["egress"][2:] == [expected]


def test_the_secret_has_each_replicas_token_and_the_shared_settings():
    secret = manifests.secret(a_plan(), FULL, owner="uid-1234-5678")
    content = {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
    assert content.pop("worker-0") == "token of 0" and content.pop("worker-1") == "token of 1"
    assert content.pop("control-ca.pem") == FULL.control_ca
    told = json.loads(content.pop("worker.json"))
    assert told["env"] == {"API_KEY": "hidden"} and told["control"] == {"url": "https://muster.example"}
    assert "index" not in told and content == {}
    assert secret["metadata"]["name"] == "m-42-abcdef-3-uid-1234"


def test_variables_of_users_are_in_no_pod():
    assert "hidden" not in json.dumps(pod(a_plan()))


def test_a_pod_mounts_only_its_own_token():
    told = next(one for one in pod(a_plan())["spec"]["volumes"] if one["name"] == "told")
    assert [one["key"] for one in told["secret"]["items"]] == ["worker.json", "worker-1"]


def test_a_volume_without_a_claim_is_refused_with_the_available_ones():
    with pytest.raises(Refused, match=r"volume models: .*team nlp.* are common, nlp/datasets$"):
        pod(a_plan(volumes={"models": ""}), site=FULL)


def test_a_teams_own_claim_takes_precedence():
    site = replace(FULL, claims={"nlp/common": "theirs", "common": "everybodys"})
    spec = pod(a_plan(volumes={"common": ""}), site=site)["spec"]
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"] if one["name"][:7] == "volume-"}  # fmt: skip
    assert claims == {"volume-0": "theirs"}


def test_the_name_of_the_agents_configmap_depends_on_its_content():
    one, other = manifests.agent_config(b"a", b"b"), manifests.agent_config(b"a", b"c")
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["immutable"]
    assert base64.b64decode(one["binaryData"]["agent.pyz"]) == b"a"


# -- properties of every plan

DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
RUNS = st.builds(lambda pk, uid: f"{pk}-{uid}", st.integers(1, 10**12), st.from_regex(r"[a-z0-9]{6,8}", fullmatch=True))
ROLES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
PLANS = st.builds(
    lambda run, attempt, role, replicas, processes, resource, volumes: Plan(
        run, attempt, (Role(role, replicas, processes, ("x",), {"A": Index(), "B": Host(role, 0), "C": Port("p", 1)}),),
        resource=resource, volumes=dict.fromkeys(volumes, ""), team="t",
    ),
    RUNS, st.integers(1, 9999), ROLES, st.integers(1, 4096), st.integers(1, 256),
    st.sampled_from(["gpu", "cpu", ""]), st.sets(st.sampled_from(["data-sets", "common"])),
)  # fmt: skip
ANY_SITE = replace(SITE, claims={"data-sets": "a", "common": "b"}, job_claim="scratch")


@given(PLANS)
def test_every_name_is_a_dns_label(plan):
    role, last = plan.roles[0], plan.roles[0].replicas - 1
    made = manifests.pod(plan, role, last, site=ANY_SITE, owner="u", agent="a")
    service = labels.service(plan.run, plan.attempt)
    assert DNS_LABEL.match(made["metadata"]["name"]) and DNS_LABEL.match(service) and service[0].isalpha()
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == (made["metadata"]["name"], service)
    host = labels.host(plan.run, plan.attempt, role.name, last, namespace="n")
    assert host == f"{made['metadata']['name']}.{service}.n.svc"


@given(PLANS)
def test_labels_survive_a_round_trip(plan):
    role = plan.roles[0]
    made = manifests.pod(plan, role, role.replicas - 1, site=ANY_SITE, owner="u", agent="a")
    assert labels.replica_of(made["metadata"]["labels"]) == labels.ReplicaLabels(
        plan.run, plan.attempt, role.name, role.replicas - 1
    )
    assert all(len(value) <= 63 for value in made["metadata"]["labels"].values())


@given(PLANS)
def test_pods_are_unprivileged_and_mount_no_service_account_token(plan):
    spec = manifests.pod(plan, plan.roles[0], 0, site=ANY_SITE, owner="u", agent="a")["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
    }  # fmt: skip
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
    assert not spec["automountServiceAccountToken"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all("hostPath" not in volume for volume in spec["volumes"])
    assert all(isinstance(one["value"], str) for one in container["env"])
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in spec["volumes"]}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([labels.RUN, labels.ATTEMPT, labels.ROLE, labels.INDEX]) | st.text(), inner)))  # fmt: skip
def test_malformed_labels_name_no_replica(thing):
    found = labels.replica_of(thing)
    assert found is None or DNS_LABEL.match(labels.pod(found.run, found.attempt, found.role, found.index))


# By which controllers select pods that they adopt, count or delete (training-operator, Volcano, Kueue, JobSet, KubeRay).
ADOPTING = {
    "training.kubeflow.org/operator-name", "operator-name", "job-name", "controller-uid", "batch.kubernetes.io/job-name",
    "volcano.sh/job-name", "kueue.x-k8s.io/managed", "jobset.sigs.k8s.io/jobset-name", "ray.io/cluster",
}  # fmt: skip


@pytest.mark.parametrize("framework", sorted(frameworks.REGISTRY))
def test_no_pod_has_a_label_by_which_another_controller_would_take_it_over(framework):
    sent = {"command": "python train.py", "framework": framework, "nodes": 2}
    described = a_plan(roles=frameworks.roles(parse(sent, options=OPTIONS)), job="gpt-small", user="ann")
    for number, role in enumerate(described.roles):
        found = pod(described, 0, role=number)["metadata"]["labels"]
        assert not ADOPTING & set(found)
        assert found["muster.dev/job"] == found["torchrun.ai/job-name"] == found["kubetorch.com/service"] == "gpt-small"
        assert (found["training.kubeflow.org/replica-type"], found["muster.dev/user"]) == (role.name, "ann")


@given(st.text(max_size=150))
def test_any_name_of_a_user_is_a_label(user):
    found = labels.for_people("job", user, role="worker", index=0)[labels.USER]
    assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", found)


def test_each_file_of_a_team_secret_is_in_the_attempts_secret_under_the_key_that_pods_mount():
    plan = with_team_secrets()
    data = manifests.secret(plan, SITE, owner="uid-1234-5678")["data"]
    volumes = {one["name"]: one for one in pod(plan)["spec"]["volumes"]}
    mounted = {
        (one["mountPath"], item["path"]): base64.b64decode(data[item["key"]]).decode()
        for one in pod(plan)["spec"]["containers"][0]["volumeMounts"]
        if one["name"].startswith("secret-")
        for item in volumes[one["name"]]["secret"]["items"]
    }
    assert mounted == {
        ("/muster/secrets/gcp", "key.json"): "{}", ("/muster/secrets/gcp", "a.pem"): "A", ("/keys", "id"): "B",
    }  # fmt: skip


def test_a_pod_has_one_volume_for_each_claim_since_the_kubelet_mounts_a_claim_once():
    site = replace(FULL, claims={"data": "scratch", "more": "other", "same": "other"})
    plan = a_plan(
        start_from=StartFrom("41-fedcba"), volumes={"data": "/data", "more": "/more", "same": ""}, read_only=frozenset({"same"}),
    )  # fmt: skip
    spec = pod(plan, site=site)["spec"]
    claims = [one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"] if "persistentVolumeClaim" in one]
    assert sorted(claims) == ["other", "scratch"]
    named = {one["name"] for one in spec["volumes"]}
    mounted = {one["mountPath"]: one for one in spec["containers"][0]["volumeMounts"]}
    assert {one["name"] for one in mounted.values()} <= named
    assert mounted["/data"] == {"name": "job", "mountPath": "/data"}
    assert mounted["/muster/from"]["subPath"] == "jobs/41-fedcba" and mounted["/muster/from"]["readOnly"]
    # never the folder for checkpoints itself: the kubelet would follow a link that the other job put in its place
    assert {"name": "MUSTER_FROM", "value": "/muster/from/checkpoints"} in spec["containers"][0]["env"]
    assert mounted["/muster/volumes/same"] == {
        "name": "volume-1",
        "mountPath": "/muster/volumes/same",
        "readOnly": True,
    }


def test_checkpoints_of_an_earlier_job_need_a_claim_that_has_them():
    with pytest.raises(Refused, match="nothing was kept of run 41-fedcba"):
        pod(a_plan(start_from=StartFrom("41-fedcba")))
    made = pod(a_plan(start_from=StartFrom("41-fedcba", claim="muster-job-41-fedcba-checkpoints")))
    (mount,) = [one for one in made["spec"]["containers"][0]["volumeMounts"] if one["name"] == "from"]
    assert mount == {"name": "from", "mountPath": "/muster/from", "readOnly": True}
