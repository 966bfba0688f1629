"""Replicas of one attempt on different nodes: preferred, and required if each takes a whole node."""

from dataclasses import replace

import pytest

from jobs import frameworks
from jobs.clusters import Placement
from jobs.clusters.kubernetes.adapter import KubernetesCluster
from jobs.core.spec import parse
from queues.shape import ReplicaShape
from rig.world import let_see_nodes
from tests.cluster.conftest import REF, end, launch, plan, pod_name, states
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


@pytest.mark.parametrize("framework", ["ray", "monarch"])
def test_a_head_without_devices_runs_beside_hosts_that_take_whole_nodes(place, framework):
    """Two hosts of eight GPUs and a head or controller on two nodes, as in Monarch's own example."""
    let_see_nodes(place.admin, place.namespace)
    cluster, nodes = cluster_of(place, 8, 8)
    sent = {"command": "python train.py", "framework": framework, "nodes": 2, "nproc_per_node": 8}
    roles = frameworks.roles(parse(sent, options=frameworks.OPTIONS))
    assert cluster.placement(roles, resource="gpu", node_slots=8) == Placement()
    places = [(role.name, index) for role in roles for index in range(role.replicas)]
    tokens = {f"{name}-{index}": "token" for name, index in places}
    launch(cluster, replace(plan(), roles=roles, secrets=tokens, resource="gpu", node_slots=8))
    until(lambda: {one.state.value for one in cluster.observe(REF, places).replicas} == {"running"})
    assert set(nodes_of(place)) == set(nodes) and len(place.pods()) == 3


def test_a_pod_is_what_its_job_says(place):
    """The API server takes every field, and the scheduler obeys: amounts below the cluster's own let it fit."""
    let_see_nodes(place.admin, place.namespace)
    cluster, (node,) = cluster_of(place, 8)
    shape = ReplicaShape(
        image="registry.example/mine:2", requests={"memory": "1Gi"}, limits={"memory": "1Gi"}, shm="512Mi",
        node_selector={"kubernetes.io/hostname": node}, tolerations=({"key": "spot", "operator": "Exists"},),
        labels={"cost-centre": "42"}, annotations={"example.org/note": "mine"},
    )  # fmt: skip
    tight = place.cluster(NODE_SELECTOR={GROUP: place.namespace}, REQUESTS={"memory": "900Ti"})
    (role,) = plan(1).roles
    assert tight.placement([role], resource="gpu", node_slots=0).problem is not None
    role = replace(role, shape=shape)
    assert tight.placement([role], resource="gpu", node_slots=0) == Placement()
    launch(tight, replace(plan(1), roles=(role,)))
    until(lambda: states(tight, 1) == ["running"])
    (pod,) = place.pods().values()
    container, meta = pod["spec"]["containers"][0], pod["metadata"]
    assert (pod["spec"]["nodeName"], container["image"]) == (node, "registry.example/mine:2")
    assert container["resources"] == {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert meta["labels"]["cost-centre"] == "42" and meta["annotations"]["example.org/note"] == "mine"
    assert end(cluster, 1).is_sealed


def test_a_retry_goes_to_other_nodes_than_the_blamed_one_if_there_are_some(place):
    cluster, (bad, *good) = cluster_of(place, 8, 8, 8)
    launch(cluster, plan(2, processes=8, resource="gpu", node_slots=8, avoided_nodes=(bad,)))
    until(lambda: set(states(cluster)) == {"running"})
    assert set(nodes_of(place)) == set(good)
    assert end(cluster).is_sealed
    launch(cluster, plan(3, run="8-abc", processes=8, resource="gpu", node_slots=8, avoided_nodes=(bad,)))
    until(lambda: set(nodes_of(place)) == {bad, *good})  # rather there than nowhere


def test_no_replica_runs_on_an_excluded_node_whatever_its_template_wants(place):
    cluster, (bad, good) = cluster_of(place, 8, 8)
    wanted = [{"matchExpressions": [{"key": GROUP, "operator": "In", "values": [place.namespace]}]}] * 2
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}}
    asked = plan(2, processes=8, resource="gpu", node_slots=8, excluded_nodes=(bad,))
    (role,) = asked.roles
    launch(cluster, replace(asked, roles=(replace(role, shape=ReplicaShape(affinity=affinity)),)))
    until(lambda: sorted(nodes_of(place)) == ["", good])
    until(lambda: "node affinity" in str(list(place.pods().values())), "the other one waits")


def test_a_cluster_says_which_nodes_it_has_and_with_which_labels(place):
    cluster, (node,) = cluster_of(place, 8)
    assert cluster.has_node(node) is None, "without the right to read nodes nobody knows"
    let_see_nodes(place.admin, place.namespace)
    cluster = place.cluster(NODE_SELECTOR={GROUP: place.namespace})
    assert (cluster.has_node(node), cluster.has_node("nowhere")) == (True, False)
    assert cluster.node_labels([node, "nowhere"])[node][GROUP] == place.namespace


def test_replicas_share_a_level_of_the_topology(place):
    """Three nodes, two of them in one rack: a replica for each node of it, or the second one waits."""
    labels = {GROUP: place.namespace}
    for rack in ("a", "b", "b"):
        place.add_node(gpus=8, labels={**labels, "rig/rack": rack})
    until(lambda: not any(NOT_READY in taints(place, node) for node in place.nodes))
    cluster = place.cluster(NODE_SELECTOR=labels)
    asked = plan(2, processes=8, resource="gpu", node_slots=8)
    (role,) = asked.roles
    near = replace(role, shape=ReplicaShape(topology={"require": "rig/rack"}))
    launch(cluster, replace(asked, roles=(near,)))
    until(lambda: any(nodes_of(place)))
    racks = {
        name: place.admin.get(f"/api/v1/nodes/{name}").json()["metadata"]["labels"]["rig/rack"] for name in place.nodes
    }
    until(lambda: all(nodes_of(place)) or "pod affinity" in str(list(place.pods().values())))
    assert len({racks[name] for name in nodes_of(place) if name}) == 1
