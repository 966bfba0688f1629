"""Replicas of one attempt on different nodes: preferred, and required if each takes a whole node."""

from jobs.clusters.kubernetes.adapter import KubernetesCluster
from tests.cluster.conftest import end, launch, plan, pod_name, states
from tests.support.patience import until

GROUP, NOT_READY = "rig/group", "node.kubernetes.io/not-ready"


def cluster_of(place, *gpus: int) -> tuple[KubernetesCluster, list[str]]:
    """An adapter whose pods run only on new nodes with this many GPUs each."""
    labels = {GROUP: place.namespace}
    nodes = [place.add_node(gpus=count, labels=labels) for count in gpus]
    until(lambda: not any(NOT_READY in taints(place, node) for node in nodes))  # the scheduler skips those
    return place.cluster(NODE_SELECTOR=labels), nodes


def taints(place, node: str) -> set[str]:
    """The node's taints. A new node has no conditions yet and gets its taint a moment later, so it counts as not ready."""
    found = place.admin.get(f"/api/v1/nodes/{node}").json()
    has_reported = any(one["type"] == "Ready" for one in found["status"].get("conditions", []))
    return {one["key"] for one in found["spec"].get("taints", [])} if has_reported else {NOT_READY}


def nodes_of(place) -> list[str]:
    return [one["spec"].get("nodeName", "") for one in place.pods().values()]


def test_replicas_prefer_separate_nodes_and_share_if_there_are_too_few(place):
    cluster, nodes = cluster_of(place, 8, 8, 8)
    launch(cluster, plan(3, processes=2, resource="gpu", node_slots=8))
    until(lambda: set(states(cluster, 3)) == {"running"})
    assert set(nodes_of(place)) == set(nodes)
    launch(cluster, plan(4, run="8-abc", processes=1, resource="gpu", node_slots=8))
    until(lambda: all(nodes_of(place)) and len(place.pods()) == 7)
    for run, count in (("7-abc", 3), ("8-abc", 4)):
        assert end(cluster, count, run=run).is_sealed


def test_a_whole_node_replica_shares_its_node_with_no_other_of_its_attempt(place):
    """A node with twice the devices could hold both; the second replica waits until there is another node."""
    cluster, (first,) = cluster_of(place, 16)
    launch(cluster, plan(2, processes=8, resource="gpu", node_slots=8))
    until(lambda: sorted(nodes_of(place)) == ["", first])
    until(lambda: "anti-affinity" in str(list(place.pods().values())))
    second = place.add_node(gpus=16, labels={GROUP: place.namespace})
    until(lambda: states(cluster) == ["running", "running"])
    assert sorted(nodes_of(place)) == sorted([first, second])
    assert set(place.pods()) == {pod_name(0), pod_name(1)}
    assert end(cluster).is_sealed
