"""Claims of teams' volumes on a real API server: made with the first job, looked at, grown, deleted; foreign ones stay."""

from dataclasses import replace

import pytest

from common.errors import Refused
from jobs.core.plan import Claim, ClaimSeen
from rig.world import let_see_nodes
from tests.cluster.conftest import NamespaceFixture, launch, plan
from tests.support.patience import until

CLASS = "rig-shared"


def make_class(place: NamespaceFixture) -> None:
    """A class whose storage is made by hand, and which lets it grow."""
    body = {"metadata": {"name": CLASS}, "provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True}
    place.admin.post("/apis/storage.k8s.io/v1/storageclasses", json=body)


def make_storage(place: NamespaceFixture, claim: Claim, size: str) -> None:
    body = {
        "metadata": {"name": f"{place.namespace}-storage"},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteMany"], "storageClassName": CLASS,
            "hostPath": {"path": "/nowhere"}, "claimRef": {"namespace": place.namespace, "name": claim.name},
        },
    }  # fmt: skip
    answer = place.admin.post("/api/v1/persistentvolumes", json=body)
    assert answer.status_code == 201, answer.text


def test_a_claim_is_made_with_the_first_job_bound_grown_and_deleted(place):
    make_class(place)
    cluster = place.cluster()
    if cluster.storage_classes() is None:
        let_see_nodes(place.admin, place.namespace)
    assert CLASS in (cluster.storage_classes() or {})
    claim = Claim("muster-volume-nlp.datasets", "1Gi", CLASS, "ReadWriteMany", "datasets", "nlp")
    assert cluster.see_claim(claim) == ClaimSeen()
    assert cluster.try_claim(claim) == "" and cluster.see_claim(claim) == ClaimSeen(), "asked, and nothing made"
    asked = replace(
        plan(2), volumes={"datasets": "/data"}, claims={"datasets": claim}, read_only=frozenset({"datasets"})
    )
    launch(cluster, asked)
    launch(cluster, asked)  # a second visit finds it
    made = place.admin.get(place.path("persistentvolumeclaims", claim.name)).json()
    assert made["spec"]["accessModes"] == ["ReadWriteMany"] and made["metadata"].get("ownerReferences") is None
    until(lambda: cluster.see_claim(claim).message)
    assert cluster.see_claim(claim).state == "pending"
    make_storage(place, claim, "1Gi")
    until(lambda: cluster.see_claim(claim) == ClaimSeen("bound", "1Gi"))
    cluster.grow_claim(replace(claim, size="2Gi"))
    found = place.admin.get(place.path("persistentvolumeclaims", claim.name)).json()
    assert found["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert cluster.remove_claim(claim) is False
    for name in place.pods():  # no kubelet mounts it; a claim goes once no pod names it
        place.remove("pods", name)
    until(lambda: cluster.remove_claim(claim))
    assert place.admin.get(place.path("persistentvolumeclaims", claim.name)).status_code == 404


def test_a_foreign_claim_of_that_name_is_neither_mounted_nor_deleted(place):
    cluster, claim = place.cluster(), Claim("muster-volume-nlp.models", "1Gi", "", "ReadWriteMany", "models", "nlp")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    place.make("persistentvolumeclaims", {"metadata": {"name": claim.name}, "spec": spec})
    with pytest.raises(Refused, match="exists and is not that of volume models; delete it"):
        launch(cluster, replace(plan(1), volumes={"models": ""}, claims={"models": claim}))
    assert place.pods() == {}
    assert cluster.remove_claim(claim) is True
    assert place.admin.get(place.path("persistentvolumeclaims", claim.name)).status_code == 200


def test_a_quota_that_would_refuse_a_claim_says_so_before_it_is_made(place):
    quota = {"metadata": {"name": "storage"}, "spec": {"hard": {"requests.storage": "10Gi"}}}
    place.make("resourcequotas", quota)
    until(lambda: place.admin.get(place.path("resourcequotas", "storage")).json().get("status", {}).get("hard"))
    cluster, claim = place.cluster(), Claim("muster-volume-nlp.big", "5Gi", "", "ReadWriteMany", "big", "nlp")
    assert cluster.try_claim(claim) == ""
    words = cluster.try_claim(replace(claim, size="20Gi"))
    assert "exceeded quota: storage" in words and "requests.storage=20Gi" in words
    assert cluster.see_claim(claim) == ClaimSeen()
