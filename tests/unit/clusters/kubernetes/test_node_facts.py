"""Nodes and pods as the API server sends them: what nodes offer, and what pods of others hold of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.clusters.kubernetes.api.decode import read_list, read_object
from jobs.clusters.kubernetes.build import labels
from jobs.clusters.kubernetes.facts.nodes import held_by_others, read_seen
from jobs.core.node_seen import NodeSeen

GPU = "nvidia.com/gpu"
KNOWN = frozenset({GPU, "example.org/accelerator"})
READY = {"type": "Ready", "status": "True"}


def thing(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "H100", "rack": "r1"}},
        "spec": more.pop("spec", {}),
        "status": {"allocatable": {GPU: "8", "cpu": "64", "memory": "1Ti"}, "conditions": [READY], **more},
    }


def seen(given: dict[str, Any]) -> NodeSeen | None:
    """The node as it is read from what the server sends: only the fields of the shapes are decoded."""
    return read_seen(read_object(json.dumps(given).encode()), known=KNOWN)


def test_a_node_is_read_with_what_it_offers():
    found = seen(thing())
    assert found == NodeSeen(
        "n1", devices={GPU: 8}, product="H100", labels={"nvidia.com/gpu.product": "H100", "rack": "r1"}
    )


@pytest.mark.parametrize(
    ("allocatable", "devices"),
    [
        ({"amd.com/gpu": "4"}, {"amd.com/gpu": 4}),
        ({"nvidia.com/mig-1g.10gb": "7", GPU: "0"}, {"nvidia.com/mig-1g.10gb": 7}),
        ({"example.org/accelerator": "2", "nvidia.com/hostdev": "4"}, {"example.org/accelerator": 2}),
        ({GPU: "eight"}, {}),
        ({GPU: "99999999999"}, {}),
        ("none", {}),
    ],
)
def test_devices_are_gpus_and_what_queues_ask_for(allocatable, devices):
    found = seen(thing(allocatable=allocatable))
    assert found is not None and found.devices == devices


def test_a_node_that_is_silent_cordoned_and_tainted_says_so():
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "team", "value": "vision", "effect": "NoExecute"},
    ]
    conditions = [
        {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped\nposting"},
        {"type": "DiskPressure", "status": "True"},
        {"type": "MemoryPressure", "status": "False"},
    ]
    found = seen(thing(spec={"unschedulable": True, "taints": taints}, conditions=conditions))
    assert found is not None
    assert (found.silence, found.is_cordoned) == ("Kubelet stopped posting", True)
    assert (found.taints, found.troubles) == (("team=vision:NoExecute",), ("DiskPressure",))


def test_one_without_conditions_has_not_reported_yet():
    found = seen(thing(conditions=[]))
    assert found is not None and found.silence == "it has not reported that it is ready"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ODD = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON | st.fixed_dictionaries({"name": JSON, "labels": JSON, "namespace": JSON}),
        "spec": JSON | st.fixed_dictionaries({"taints": JSON, "unschedulable": JSON, "containers": JSON, "nodeName": JSON}),
        "status": JSON | st.fixed_dictionaries({"allocatable": JSON, "conditions": JSON}),
    },
)  # fmt: skip


@given(ODD)
def test_no_malformed_object_is_an_error(odd):
    found = read_seen(odd, known=KNOWN)
    assert found is None or found.name
    assert held_by_others([odd], known=KNOWN, ours=["mine"]).total() >= 0


def pod(node: str, gpus: int, *, namespace: str = "others", run: str = "", phase: str = "Running", **spec: Any) -> Any:
    container = {"resources": {"limits": {GPU: str(gpus), "cpu": "1"}}}
    made = {
        "metadata": {"name": "p", "namespace": namespace, "labels": labels.of_attempt(run, 1) if run else {"app": "x"}},
        "spec": {"nodeName": node, "containers": [container], **spec},
        "status": {"phase": phase},
    }
    return read_object(json.dumps(made).encode())


def test_pods_of_others_hold_what_their_containers_ask_for():
    init = [{"resources": {"limits": {GPU: "4"}}}, {}]
    two = [{"resources": {"limits": {GPU: "1"}}}, {"resources": {"limits": {GPU: "2"}}}]
    pods = [
        pod("n1", 2),
        pod("n1", 1, initContainers=init),
        pod("n2", 0, containers=two),
        pod("", 8),  # not scheduled yet
        pod("n3", 8, phase="Succeeded"),
        pod("n4", 8, run="7-abc", namespace="muster-jobs"),
        pod("n5", 3, run="7-abc", namespace="muster-of-others"),
        pod("n6", 1, namespace="muster-jobs"),  # in our namespace, and none of our jobs
    ]
    found = held_by_others(pods, known=KNOWN, ours=["muster-jobs"])
    assert found == {"n1": 6, "n2": 3, "n5": 3, "n6": 1}


def test_a_page_of_a_list_is_read_with_what_asks_for_the_next():
    page = {
        "kind": "PodList",
        "metadata": {"continue": "abc", "resourceVersion": "7"},
        "items": [{"spec": {"nodeName": "n1"}}],
    }
    (one,), following = read_list(json.dumps(page).encode())
    assert one.spec.nodeName == "n1" and following == "abc"
    assert read_list(b'{"metadata": {}, "items": null}') == ([], "")
    with pytest.raises(ValueError, match="no list"):
        read_list(b"<html>")
