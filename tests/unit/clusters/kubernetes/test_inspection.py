"""What a cluster's answers say of whether Muster can use it, with the remedy and who can apply it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.clusters.kubernetes.reading.findings import (
    MOST_GROUPS,
    RIGHTS,
    kinds,
    missing,
    of_nodes,
    of_operators,
    of_rights,
    of_storage,
    of_version,
    operators,
    to_read,
)
from tests.support.kube_site import site_of

DEPLOY = Path(__file__).resolve().parents[4] / "deploy"
ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


def rules_of(file: str, *kinds: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((DEPLOY / file).read_text())
    named = [one for one in documents if one["kind"] in kinds and one["metadata"]["name"] != "muster-reader"]
    return [rule for one in named for rule in one["rules"]]


def node(name: str = "n1", *, labels: Any = None, ready: str = "True", **amounts: str) -> dict[str, Any]:
    amounts = {key.replace("__", "/").replace("_dot_", "."): value for key, value in amounts.items()}
    status = {"allocatable": {"cpu": "8", **amounts}, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {}, "status": status}


def told(found: Any) -> list[tuple[str, str]]:
    return [(one.state, one.words) for one in found]


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        ("v1.33.2", "ok", "Kubernetes v1.33.2"),
        ("v1.29+k3s1", "ok", "Kubernetes v1.29+k3s1"),
        ("v1.28.1-eks", "note", "Kubernetes v1.28.1-eks; sidecars of a queue's template need 1.29"),
        ("v1.20.1", "note", "Kubernetes v1.20.1, older than what Muster is tested with (1.27)"),
        ("nginx", "wrong", "the answer names no version: this may be no Kubernetes"),
        (None, "wrong", "the answer names no version: this may be no Kubernetes"),
    ],
)
def test_what_a_version_means(said, state, words):
    assert told([of_version({"gitVersion": said})]) == [(state, words)]


def test_the_rights_are_those_that_the_files_grant():
    granted = {
        (group, resource, verb)
        for rule in [*rules_of("account.yaml", "Role"), *rules_of("nodes.yaml", "ClusterRole")]
        for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }  # fmt: skip
    assert {(one.group, one.resource, verb) for one in RIGHTS for verb in one.verbs} == granted


def test_a_right_that_no_rule_grants_is_missing():
    pods = RIGHTS[0]
    assert missing(ALL, pods) == ()
    assert missing([], pods) == pods.verbs
    some = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create"]}
    assert missing([some], pods) == ("patch", "delete", "deletecollection")
    assert missing([{**some, "resourceNames": ["one"]}], pods) == pods.verbs, "of one pod only"
    assert missing([{**some, "apiGroups": ["metrics.k8s.io"]}], pods) == pods.verbs


def test_what_is_missing_is_said_with_what_does_not_work():
    lacking = {one: one.verbs[-1:] for one in RIGHTS if one.resource in ("pods", "networkpolicies", "nodes")}
    assert told(of_rights(lacking, site_of())) == [
        ("wrong", "the account may not deletecollection pods in namespace muster-jobs: no job can run"),
        ("note", "the account may not create networkpolicies.networking.k8s.io in namespace muster-jobs: pods of one job can reach those of another"),
        ("note", "the account may not watch nodes: jobs that never fit are not refused, and lost nodes are noticed late"),
    ]  # fmt: skip
    assert [one.state for one in of_rights(lacking, site_of(NETWORK_POLICY=True))] == ["wrong", "wrong", "note"]
    assert told(of_rights({}, site_of())) == [("ok", "the account has every right that Muster uses")]


def test_gpus_that_no_plug_in_offers_are_found_by_their_labels():
    present = {"nvidia.com/gpu.present": "true"}
    nodes = [node("a", labels=present, nvidia_dot_com__gpu="8"), node("b", labels=present), node("c", ready="Unknown")]
    assert told(of_nodes(nodes, site_of())) == [
        ("ok", "3 nodes with 8 nvidia.com/gpu"),
        ("wrong", "node b has GPUs by its label, and no plug-in offers nvidia.com/gpu there"),
        ("note", "node c takes no new pods: cordoned, or not ready"),
    ]
    assert told(of_nodes([node(labels={"nvidia.com/gpu.present": "false"})], site_of())) == [
        ("ok", "1 node with no GPUs"),
        ("note", "no node offers nvidia.com/gpu, which queues of gpu ask for"),
    ]
    sliced = node(labels=present, **{"nvidia_dot_com__mig-1g.10gb": "7"})
    assert [one.state for one in of_nodes([sliced], site_of())] == ["ok", "note"], "slices are offered"
    assert told(of_nodes([], site_of())) == [("wrong", "the cluster has no nodes")]


@pytest.mark.parametrize(
    ("known", "state", "words"),
    [
        (None, "note", "storage classes cannot be read"),
        ({}, "note", "no class serves several nodes (there is none): jobs of several nodes share no volume"),
        ({"gp3": "ebs.csi.aws.com"}, "note", "no class serves several nodes (gp3): jobs of several nodes share no volume"),
        ({"x": "a.b"}, "note", "whether several nodes can mount volumes of x is not known here"),
        ({"": "ebs.csi.aws.com", "gp3": "ebs.csi.aws.com", "efs": "efs.csi.aws.com"}, "ok", "several nodes can mount volumes of efs"),
    ],
)  # fmt: skip
def test_which_storage_several_nodes_can_mount(known, state, words):
    assert told([of_storage(known)]) == [(state, words)]


def group(name: str, *versions: str) -> dict[str, Any]:
    return {
        "name": name, "versions": [{"version": one} for one in versions], "preferredVersion": {"version": versions[0]},
    }  # fmt: skip


def test_operators_are_known_by_their_groups():
    groups = operators({"groups": [group("apps", "v1"), group("ray.io", "v1", "v1alpha1")]})
    assert told(of_operators(groups, {})) == [("ok", "KubeRay (ray.io: v1, v1alpha1)")]
    served = {
        "ray.io": kinds(
            {"resources": [{"name": "rayjobs", "kind": "RayJob"}, {"name": "rayjobs/status", "kind": "RayJob"}]}
        )
    }
    assert told(of_operators(groups, served)) == [("ok", "KubeRay (ray.io: v1, v1alpha1): RayJob")]
    assert operators({"groups": "odd"}) == {} and kinds({"resources": 7}) == []


@pytest.mark.parametrize(
    ("versions", "served", "words"),
    [
        (["v1alpha1"], ["MonarchMesh"], ""),
        (["v1beta1", "v1alpha1"], ["MonarchMesh"], ""),
        (["v1alpha1"], None, ""),  # it could not be read
        (["v1beta1"], ["MonarchMesh"], "serves v1beta1 of monarch.pytorch.org"),
        (["v1alpha1"], ["HostMesh"], "serves HostMesh in monarch.pytorch.org/v1alpha1"),
        (["v1alpha1"], [], "serves no kind in monarch.pytorch.org/v1alpha1"),
    ],
)
def test_an_operator_without_the_kind_or_version_that_muster_uses_is_named(versions, served, words):
    name = "monarch.pytorch.org"
    found = list(of_operators({name: versions}, {} if served is None else {name: served}))
    assert found[0].state == "ok" and [one.state for one in found[1:]] == ["note"] * bool(words)
    if words:
        assert words in found[1].words and "Muster uses MonarchMesh of monarch.pytorch.org/v1alpha1" in found[1].words
        assert "mesh_launcher" in found[1].words and found[1].who


def test_few_groups_are_read_and_those_first_that_muster_uses():
    groups = {name: ["v1"] for name in ("batch.volcano.sh", "jobset.x-k8s.io", "kueue.x-k8s.io", "ray.io")}
    groups["monarch.pytorch.org"] = ["v1beta1", "v1alpha1"]
    found = to_read(groups)
    assert len(found) == MOST_GROUPS and next(iter(found)) == "monarch.pytorch.org"
    assert found["monarch.pytorch.org"] == "v1alpha1", "the one that Muster uses, where it is served"
