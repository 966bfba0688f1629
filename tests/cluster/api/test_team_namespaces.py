"""Teams in namespaces of their own, on a real API server: where pods are made, what they lack, and a claim that moves with its data."""

import os
import subprocess
from itertools import count
from pathlib import Path

import pytest

from common.errors import Refused
from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import Claim
from rig import programs
from rig.world import abandon, let_make_namespaces, settle
from tests.cluster.conftest import expected, launch, plan
from tests.support.patience import until

ROOT = Path(__file__).resolve().parents[3]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
_numbers = count(1)


@pytest.fixture
def second(place):
    """Another namespace on the same API server, with the account of `place` let in by one Role."""
    name = f"t{os.getpid()}-team{next(_numbers)}"
    settle(place.plane, name)
    yield name
    abandon(place.admin, name)


def let_in(place, namespace: str) -> None:
    """What `deploy/account.yaml` with the namespace's name does: its Role for the account of the other one."""
    first = place.admin.get(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/rolebindings/muster"
    ).json()
    binding = {
        "metadata": {"name": "muster-of-first"}, "subjects": first["subjects"],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "muster"},
    }  # fmt: skip
    answer = place.admin.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", json=binding)
    assert answer.status_code == 201, answer.text


def test_rights_and_claims_are_those_of_the_namespace_that_is_asked_about(place, second):
    cluster = place.cluster()
    found = cluster.inspect_rights(second)
    assert any("may not create" in one.words and second in one.words and one.state == "wrong" for one in found)
    let_in(place, second)
    until(lambda: not [one for one in cluster.inspect_rights(second) if one.state == "wrong"])
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert place.admin.post(f"/api/v1/namespaces/{second}/persistentvolumeclaims", json=claim).status_code == 201
    assert cluster.see_claim(Claim("data")).state == ""
    assert cluster.see_claim(Claim("data", namespace=second)).state == "pending"


def test_pods_are_made_in_the_namespace_of_the_plan_and_nothing_elsewhere(place, second):
    let_in(place, second)
    cluster = place.cluster()
    until(lambda: not [one for one in cluster.inspect_rights(second) if one.state == "wrong"])
    launch(cluster, plan(namespace=second))
    ref = AttemptRef("7-abc", 1, second)
    until(lambda: {one.state.value for one in cluster.observe(ref, expected()).replicas} == {"running"})
    assert not place.pods()
    cluster.delete(ref, 1, is_now=True)
    until(lambda: not place.admin.get(f"/api/v1/namespaces/{second}/pods").json()["items"])


def kubectl(place, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "KUBECONFIG": str(place.plane.kubeconfig),
        "PATH": f"{programs.folder(programs.KUBECTL_SOURCES)}:{os.environ['PATH']}",
    }
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=180, check=False)


def test_a_claim_moves_with_its_volume(place, second):
    path = "/api/v1/persistentvolumes"
    volume = f"pv-{second}"
    made = {
        "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "by-hand", "nfs": {"server": "nfs.example", "path": "/data"},
        },
    }  # fmt: skip
    assert place.admin.post(path, json=made).status_code == 201
    try:
        claim = {
            "metadata": {"name": "data", "labels": {"muster.dev/volume": "data"}},
            "spec": {
                "accessModes": ["ReadWriteMany"], "storageClassName": "by-hand", "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }  # fmt: skip
        place.make("persistentvolumeclaims", claim)

        def bound(namespace: str) -> bool:
            found = place.admin.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/data")
            return found.status_code == 200 and found.json()["status"].get("phase") == "Bound"

        until(lambda: bound(place.namespace))
        done = kubectl(place, str(ROOT / "deploy/move-claim.sh"), place.namespace, "data", second)
        assert done.returncode == 0, done.stderr
        assert bound(second) and not bound(place.namespace)
        moved = place.admin.get(f"/api/v1/namespaces/{second}/persistentvolumeclaims/data").json()
        assert moved["metadata"]["labels"] == {"muster.dev/volume": "data"}
        after = place.admin.get(f"{path}/{volume}").json()
        assert after["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert not [name for name in after["metadata"].get("annotations") or {} if name.startswith("muster.dev/")]
        again = kubectl(place, str(ROOT / "deploy/move-claim.sh"), place.namespace, "data", second)
        assert again.returncode == 1 and "has no claim data" in again.stderr
    finally:
        place.admin.delete(f"{path}/{volume}")


@pytest.fixture
def made(place):
    """The name of a namespace that Muster is to make; what it makes, and the right to, end with the test."""
    name = f"t{os.getpid()}-made{next(_numbers)}"
    yield name
    place.admin.delete(f"/api/v1/namespaces/{name}")
    for role in ("team", "team-reader", "team-namespaces"):
        for kind in ("clusterrolebindings", "clusterroles"):
            place.admin.delete(f"{RBAC}/{kind}/{place.namespace}-{role}")


def test_a_namespace_is_made_with_muster_s_rights_and_a_closed_network(place, made):
    cluster = place.cluster(TEAM_ROLE=f"{place.namespace}-team", NETWORK_POLICY=True)
    with pytest.raises(Refused, match=r"may not make namespaces.*deploy/team-namespaces\.yaml"):
        cluster.make_namespace(made)
    assert place.admin.get(f"/api/v1/namespaces/{made}").status_code == 404
    let_make_namespaces(place.admin, place.namespace)
    cluster.make_namespace(made)
    found = place.admin.get(f"/api/v1/namespaces/{made}").json()
    assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert not [one for one in cluster.inspect_rights(made) if one.state == "wrong"]
    policies = place.admin.get(f"/apis/networking.k8s.io/v1/namespaces/{made}/networkpolicies").json()["items"]
    assert [one["metadata"]["name"] for one in policies] == ["default-deny"]
    (reader,) = [
        one
        for one in place.admin.get(f"{RBAC}/namespaces/{made}/rolebindings").json()["items"]
        if one["metadata"]["name"] == "muster-reader"
    ]
    assert reader["roleRef"]["name"] == f"{place.namespace}-team-reader"
    until(lambda: place.admin.get(f"/api/v1/namespaces/{made}/serviceaccounts/default").is_success)
    launch(cluster, plan(namespace=made))
    ref = AttemptRef("7-abc", 1, made)
    until(lambda: {one.state.value for one in cluster.observe(ref, expected()).replicas} == {"running"})


def test_one_that_is_there_is_left_alone_whatever_it_says_of_itself(place, made, second):
    cluster = place.cluster(TEAM_ROLE=f"{place.namespace}-team")
    let_make_namespaces(place.admin, place.namespace)
    begun = {"metadata": {"name": made, "labels": {"app.kubernetes.io/managed-by": "muster"}}}
    assert place.admin.post("/api/v1/namespaces", json=begun).status_code == 201
    for name in (second, made):
        with pytest.raises(Refused, match=f"namespace {name} is there already"):
            cluster.make_namespace(name)
        bindings = place.admin.get(f"{RBAC}/namespaces/{name}/rolebindings").json()["items"]
        assert not [one for one in bindings if one["roleRef"]["kind"] == "ClusterRole"]


def test_muster_can_bind_no_other_role_and_nobody_else_s_namespace_is_touched(place, made):
    """What the right in deploy/team-namespaces.yaml does not allow."""
    let_make_namespaces(place.admin, place.namespace)
    cluster = place.cluster(TEAM_ROLE="cluster-admin")
    with pytest.raises(Refused, match="may not make what the namespace needs"):
        cluster.make_namespace(made)
