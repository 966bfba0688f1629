"""Nodes as a real API server lists them, and what pods of others hold of them where the account may see that."""

from typing import Any

import pytest

from jobs.clusters.kubernetes.adapter import KubernetesCluster
from jobs.clusters.kubernetes.api import reviews
from jobs.core.node_seen import NodeSeen
from rig.world import let_see_all_pods, let_see_nodes
from tests.cluster.api.test_spread import GROUP, NOT_READY, taints
from tests.cluster.conftest import MERGE, TOLERATIONS, NamespaceFixture, end, launch, plan, states
from tests.support.patience import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GPU, ELSEWHERE = "nvidia.com/gpu", "/api/v1/namespaces/default/pods"


@pytest.fixture
def seen_by(place: NamespaceFixture):
    """The nodes as this test's account sees them, by name; its rights end with the test."""

    def look(cluster: KubernetesCluster) -> dict[str, NodeSeen]:
        return {one.name: one for one in cluster.list_nodes() or []}

    yield look
    for kind in ("clusterrolebindings", "clusterroles"):
        for name in ("nodes", "foreign-pods"):
            place.admin.delete(f"{RBAC}/{kind}/{place.namespace}-{name}")


def ready(place: NamespaceFixture, **said: Any) -> str:
    node = place.add_node(**said)
    until(lambda: NOT_READY not in taints(place, node))
    return node


def foreign_pod(place: NamespaceFixture, node: str, gpus: int) -> str:
    """A pod of somebody else's on the node."""
    name = f"other-{place.namespace}"
    limits = {"limits": {GPU: str(gpus)}}
    spec = {
        "nodeName": node, "tolerations": TOLERATIONS, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "x", "resources": limits}],
    }  # fmt: skip
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    answer = place.admin.post(ELSEWHERE, json=made)
    assert answer.status_code == 201, answer.text
    return name


def test_without_the_right_to_see_nodes_none_are_listed(place):
    assert place.cluster().list_nodes() is None


def test_a_node_is_listed_with_what_it_offers_and_how_it_is(place, seen_by):
    let_see_nodes(place.admin, place.namespace)
    node = ready(place, gpus=8, labels={"nvidia.com/gpu.product": "H100", "rig/rack": "r1"})
    found = seen_by(place.cluster())[node]
    assert (found.devices, found.product, found.silence, found.others) == ({GPU: 8}, "H100", "", None)
    assert found.labels["rig/rack"] == "r1" and found.taints == ("kwok.x-k8s.io/node=fake:NoSchedule",)
    cordon = place.admin.patch(f"/api/v1/nodes/{node}", headers=MERGE, json={"spec": {"unschedulable": True}})
    assert cordon.status_code == 200, cordon.text
    until(lambda: seen_by(place.cluster())[node].is_cordoned)
    assert seen_by(place.cluster())[node].taints == ("kwok.x-k8s.io/node=fake:NoSchedule",), "cordoned is said once"


def test_pods_of_others_count_once_the_account_may_list_them(place, seen_by, monkeypatch):
    let_see_nodes(place.admin, place.namespace)
    node = ready(place, gpus=8, labels={GROUP: place.namespace})
    now = [1e9]
    cluster = place.cluster(NODE_SELECTOR={GROUP: place.namespace})
    slow = KubernetesCluster(agent=place.agent, clock=lambda: now[0], **_options(place))
    place.clusters.append(slow)
    name = foreign_pod(place, node, 3)
    try:
        launch(cluster, plan(1, processes=2, resource="gpu", node_slots=8))
        until(lambda: states(cluster, 1) == ["running"])
        assert seen_by(slow)[node].others is None
        let_see_all_pods(place.admin, place.namespace)
        asked = _counted(slow, monkeypatch)
        assert seen_by(slow)[node].others is None and asked == ["api/v1/nodes"], "a refusal is remembered"
        now[0] += 301
        assert seen_by(slow)[node].others == 3, "its own pods are not those of others"
        assert asked[1:] == ["api/v1/nodes", f"{reviews.GROUP}/selfsubjectaccessreviews", "api/v1/pods"]
    finally:
        place.admin.delete(f"{ELSEWHERE}/{name}")
    until(lambda: seen_by(slow)[node].others == 0)
    assert end(cluster, 1).is_sealed


def test_all_pods_are_read_page_by_page(place, seen_by, monkeypatch):
    monkeypatch.setattr("jobs.clusters.kubernetes.watch.node_list.PAGE", 1)
    let_see_nodes(place.admin, place.namespace)
    let_see_all_pods(place.admin, place.namespace)
    node = ready(place, gpus=8, labels={GROUP: place.namespace})
    cluster = place.cluster(NODE_SELECTOR={GROUP: place.namespace})
    launch(cluster, plan(2, processes=1, resource="gpu", node_slots=8))
    until(lambda: states(cluster) == ["running", "running"])
    name = foreign_pod(place, node, 1)
    try:
        assert seen_by(cluster)[node].others == 1
        monkeypatch.setattr("jobs.clusters.kubernetes.watch.node_list.MOST_PAGES", 1)
        assert seen_by(cluster)[node].others is None, "there are more pods than are counted"
    finally:
        place.admin.delete(f"{ELSEWHERE}/{name}")
    assert end(cluster).is_sealed


def _options(place: NamespaceFixture) -> dict[str, Any]:
    return {
        "KUBECONFIG": str(place.kubeconfig), "NAMESPACE": place.namespace, "IMAGE": "x:1", "CONTROL_URL": "http://muster.test",
    }  # fmt: skip


def _counted(cluster: KubernetesCluster, monkeypatch) -> list[str]:
    """Return the list to which the path of each request of this cluster's is added."""
    asked, call = [], cluster.api.call

    async def noted(verb, path, **more):
        asked.append(path)
        return await call(verb, path, **more)

    monkeypatch.setattr(cluster.api, "call", noted)
    return asked
