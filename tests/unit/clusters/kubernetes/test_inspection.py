"""What a cluster's answers say of whether Muster can use it, with the remedy and who can apply it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.clusters.kubernetes.reading.findings import (
    RIGHTS,
    missing,
    of_groups,
    of_nodes,
    of_rights,
    of_storage,
    of_version,
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


def test_operators_are_known_by_their_groups():
    groups = [
        {"name": "apps", "versions": [{"version": "v1"}]},
        {"name": "ray.io", "versions": [{"version": "v1"}, {"version": "v1alpha1"}]},
    ]
    assert told(of_groups({"groups": groups})) == [("ok", "KubeRay (ray.io: v1, v1alpha1)")]
    assert told(of_groups({"groups": "odd"})) == []
