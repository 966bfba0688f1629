"""The fields of a job's pods: what is taken, and what is refused at which path with which way out."""

import json

import pytest

from common.errors import InvalidSpec
from jobs import frameworks
from jobs.core import pod_fields
from jobs.core.plan import Role
from jobs.core.spec import JobSpec, parse
from queues.shape import ReplicaShape

COMMAND = {"command": "torchrun train.py"}
GIVEN = {
    "image": "registry.example:5000/ml/train_base:2.9@sha256:" + "0" * 64,
    "cpu": 8,
    "memory": "32Gi",
    "shm": "8Gi",
    "node_selector": {"pool": "a100", "topology.kubernetes.io/zone": "z1"},
    "tolerations": ["gpu=true:NoSchedule", "spot", {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "priority_class": "batch-low",
    "labels": {"cost-centre": "42"},
    "annotations": {"example.org/note": "any text: ü"},
    "working_dir": "examples/mnist/",
}  # fmt: skip


def problems_of(sent, **more) -> list[tuple[str, str]]:
    with pytest.raises(InvalidSpec) as refused:
        frameworks.check(parse({**COMMAND, **sent}, options=frameworks.OPTIONS, **more), frozenset())
    return [(problem.field, problem.message) for problem in refused.value.problems]


def test_every_field_reaches_the_shape_of_every_role():
    (role,) = frameworks.roles(parse({**COMMAND, **GIVEN}))
    assert role.shape == ReplicaShape(
        image=GIVEN["image"], requests={"cpu": "8", "memory": "32Gi"}, limits={"cpu": "8", "memory": "32Gi"}, shm="8Gi",
        node_selector=GIVEN["node_selector"],
        tolerations=(
            {"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists"},
            GIVEN["tolerations"][2],
        ),
        priority_class="batch-low", labels={"cost-centre": "42"}, annotations=GIVEN["annotations"],
        working_dir="examples/mnist",
    )  # fmt: skip


def test_a_spec_with_every_field_survives_its_storage_and_its_resubmission():
    spec = parse({**COMMAND, **GIVEN, "roles": {"worker": {"cpu": "2"}}})
    assert JobSpec.from_json(spec.to_json()) == spec
    assert parse({**spec.unchanged_input(), "secrets": {}}) == spec


def test_a_job_that_says_nothing_of_its_pods_is_stored_as_by_the_release_before():
    assert not {*pod_fields.NAMES, "roles"} & set(parse(COMMAND).to_json())


def test_a_role_s_own_fields_win_over_those_of_all_roles_and_of_its_framework():
    sent = {
        "framework": "ray", "cpu": "4", "image": "all:1", "head_cpu": "2", "head_memory": "8Gi",
        "roles": {"head": {"image": "head:1", "memory": "16Gi"}},
    }  # fmt: skip
    head, worker = frameworks.roles(parse({**COMMAND, **sent}, options=frameworks.OPTIONS))
    assert (head.shape.image, head.shape.limits) == ("head:1", {"cpu": "2", "memory": "16Gi"})
    assert (worker.shape.image, worker.shape.limits) == ("all:1", {"cpu": "4"})


def test_a_role_that_the_job_does_not_have_is_refused_with_those_it_has():
    assert problems_of({"framework": "ray", "roles": {"haed": {"cpu": "1"}}}) == [
        ("roles.haed", "is no role of this job; it has head and worker")
    ]


@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"image": "Not An Image"}, "image", "is not the name of an image"),
        ({"image": "repo/Train:1"}, "image", "is not the name of an image"),
        ({"image": 3}, "image", "is not the name of an image"),
        ({"image": "a/" * 400 + "b"}, "image", "is not the name of an image"),
        ({"cpu": "8Gi"}, "cpu", "is no number of cores"),
        ({"memory": "512GB"}, "memory", "write 512Gi"),
        ({"shm": "8 Gi"}, "shm", "write 8Gi"),
        ({"memory": float("nan")}, "memory", "is not understood"),
        ({"node_selector": ["pool"]}, "node_selector", "must map names to text"),
        ({"node_selector": {"pool": 3}}, "node_selector.pool", "must be text; quote numbers"),
        ({"node_selector": {"a b": "c"}}, "node_selector.a b", "is not the key of a label"),
        ({"node_selector": {"a": "b c"}}, "node_selector.a", "is not the value of a label"),
        ({"node_selector": {f"k{number}": "v" for number in range(60)}}, "node_selector", "has at most 50 entries"),
        ({"labels": {"muster.dev/run": "7-abc"}}, "labels.muster.dev/run", "belongs to Muster"),
        ({"labels": {"operator-name": "training-operator"}}, "labels.operator-name", "would act on the pod"),
        ({"labels": {"training.kubeflow.org/job-name": "x"}}, "labels.training.kubeflow.org/job-name", "belongs to"),
        ({"labels": {"monarch.pytorch.org/mesh-name": "x"}}, "labels.monarch.pytorch.org/mesh-name", "belongs to"),
        ({"annotations": {"k8s.v1.cni.cncf.io/networks": "x"}}, "annotations.k8s.v1.cni.cncf.io/networks", "belongs to"),
        ({"annotations": {"a": "x" * 20_000}}, "annotations.a", "must be text of at most"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "x"}}, "labels.kueue.x-k8s.io/queue-name", "would act on the pod"),
        ({"annotations": {"iam.amazonaws.com/role": "x"}}, "annotations.iam.amazonaws.com/role", "would act on the pod"),
        ({"annotations": {f"a{number}": "x" * 16_000 for number in range(9)}}, "annotations", "together; remove some"),
        ({"labels": {"a..b/c": "x"}}, "labels.a..b/c", "is not the key of a label"),
        ({"cpu": "\u0663"}, "cpu", "is not understood"),
        ({"cpu": 10**5000}, "cpu", "is not understood"),
        ({"image": "a..b/c"}, "image", "is not the name of an image"),
        ({"tolerations": 3}, "tolerations", "must be a list"),
        ({"tolerations": ["a=" + "x" * 900]}, "tolerations.a", "is not the value of a label"),
        ({"tolerations": ["ok", "node-role.kubernetes.io/control-plane"]}, "tolerations.1", "off nodes of its own"),
        ({"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 10**30}]}, "tolerations.0", "are from 0 to"),
        ({"roles": {"worker": {1: 2}}}, "roles.worker.1", "is not a field of a role"),
        ({"roles": {f"r{number}": {} for number in range(101)}}, "roles", "has at most 100 roles"),
        ({"node_selector": {"z": "a"}, "roles": {"worker": {"node_selector": {"z": "b"}}}}, "roles.worker.node_selector.z", "is a for all roles"),
        ({"working_dir": " "}, "working_dir", "must be a path"),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations.0", "has no key"),
        ({"tolerations": ["gpu:Never"]}, "tolerations.0", "has an unknown effect"),
        ({"tolerations": [{"key": "a", "tolerationSeconds": "3"}]}, "tolerations.0", "is no toleration"),
        ({"tolerations": [{"key": "a", "tolerationSeconds": 3}]}, "tolerations.0", "only the effect NoExecute has"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "tolerations.0", "has a value"),
        ({"tolerations": [{"key": "a", "is": "b"}]}, "tolerations.0", "is no toleration"),
        ({"priority_class": "system-node-critical"}, "priority_class", "is kept for the cluster's own pods"),
        ({"priority_class": "No Class"}, "priority_class", "is not the name of a priority class"),
        ({"working_dir": "../other"}, "working_dir", "leads out of the job's code"),
        ({"working_dir": "a\nb"}, "working_dir", "must be a path"),
        ({"roles": "head"}, "roles", "must map names of roles"),
        ({"roles": {"worker": 3}}, "roles.worker", "must map fields to values"),
        ({"roles": {"worker": {"gpus": 3}}}, "roles.worker.gpus", "is not a field of a role; known are image, cpu"),
        ({"roles": {"worker": {"labels": {"muster.dev/x": "y"}}}}, "roles.worker.labels.muster.dev/x", "belongs to"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_path_and_the_way_out(sent, field, words):
    ((at, message),) = problems_of(sent)
    assert at == field and words in message


def test_all_problems_are_reported_at_once():
    sent = {"cpu": "x", "memory": "y", "image": "Z Z", "roles": {"worker": {"cpu": "x"}}}
    assert [field for field, _ in problems_of(sent)] == ["image", "cpu", "memory", "roles.worker.cpu"]


@pytest.mark.parametrize("text", ["gpu=true:NoSchedule", "spot", "a/b=c", "k:NoExecute"])
def test_a_toleration_is_shown_as_its_taint_is_written(text):
    (role,) = frameworks.roles(parse({**COMMAND, "tolerations": [text]}))
    assert [pod_fields.taint(one) for one in role.shape.tolerations] == [text]


def test_shared_memory_beyond_the_memory_is_a_problem():
    whole = ReplicaShape(shm="16Gi", limits={"memory": "8Gi"})
    found = pod_fields.shm_problem(whole, "shm")
    assert (found.field, found.value) == ("shm", "16Gi") and "more than memory 8Gi" in found.message
    assert pod_fields.shm_problem(ReplicaShape(shm="8192Mi", limits={"memory": "8Gi"}), "shm") is None


def test_a_queue_s_default_holds_where_the_job_says_nothing():
    spec = parse({**COMMAND, "memory": "8Gi"}, defaults={"image": "team:1", "memory": "64Gi"})
    assert (spec.image, spec.memory) == ("team:1", "8Gi")


QUEUE = {
    "tolerations": ["gpu"], "labels": {"team": "nlp", "site": "a"}, "node_selector": {"pool": "a100"},
    "roles": {"worker": {"memory": "64Gi", "labels": {"x": "1"}}},
}  # fmt: skip


def test_a_job_s_mappings_and_tolerations_are_added_to_its_queue_s():
    sent = {
        **COMMAND, "tolerations": ["spot", "gpu"], "labels": {"site": "b"}, "node_selector": {"zone": "z"},
        "roles": {"worker": {"cpu": "2", "labels": {"y": "2"}}},
    }  # fmt: skip
    spec = parse(sent, defaults=QUEUE)
    assert [one["key"] for one in spec.tolerations] == ["gpu", "spot"]
    assert spec.labels == {"team": "nlp", "site": "b"} and spec.node_selector == {"pool": "a100", "zone": "z"}
    assert spec.roles == {"worker": {"memory": "64Gi", "cpu": "2", "labels": {"x": "1", "y": "2"}}}


def test_a_job_cannot_leave_the_nodes_of_its_queue():
    ((field, words),) = problems_of({"node_selector": {"pool": "cpu"}}, defaults=QUEUE)
    assert (field, words) == ("node_selector.pool", "is a100 for every job of this queue; remove it")


@pytest.mark.parametrize(
    "one",
    [
        {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Equal", "value": ""}, {"key": "a"},
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 60},
    ],
)  # fmt: skip
def test_a_toleration_written_for_a_form_reads_back_as_itself(one):
    text = pod_fields.written(one)
    (read,) = parse({**COMMAND, "tolerations": [json.loads(text) if text.startswith("{") else text]}).tolerations
    assert read == one


def test_a_role_without_any_field_has_an_empty_shape():
    assert Role("worker", 1, 1, ("true",)).shape == ReplicaShape()
