"""A shape that no node could ever take is refused with the nearest shape that fits; every other shape passes."""

import pytest

from jobs.clusters.kubernetes.build.site import Site
from jobs.clusters.kubernetes.facts.sizes import Size, placement_problem, quantity, read_size

SMALL = Size({"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}, {"zone": "a"})
LARGE = Size({"cpu": "128", "memory": "1Ti", "nvidia.com/gpu": "8"}, {"zone": "b"})
PLAIN = Size({"cpu": "500m", "memory": "2Gi"}, {"zone": "c"})


def said(processes, *, nodes=1, sizes=(SMALL, LARGE, PLAIN), resource="gpu", own_nodes=0, **site) -> str:
    site = Site("jobs", "x:1", "http://muster.test", **site)
    asked = {"slots": processes, "nodes": nodes, "resource": resource, "own_nodes": own_nodes}
    found = placement_problem(**asked, site=site, sizes=sizes)
    return f"{found.field} {found.value}: {found.message}" if found else ""


@pytest.mark.parametrize(
    ("processes", "nodes", "way_out"),
    [
        (16, 1, "nproc_per_node=8 on nodes=2"),
        (16, 4, "nproc_per_node=8 on nodes=8"),
        (12, 1, "nproc_per_node=6 on nodes=2"),
        (9, 1, "nproc_per_node=3 on nodes=3"),
        (11, 1, "nproc_per_node=1 on nodes=11"),
    ],
)
def test_more_gpus_than_any_node_has_are_refused_with_the_nearest_shape(processes, nodes, way_out):
    assert said(processes, nodes=nodes) == (
        f"nproc_per_node {processes}: needs {processes} nvidia.com/gpu on one node, and the largest node has 8; use {way_out}"
    )


@pytest.mark.parametrize(
    ("processes", "changes"),
    [
        (8, {}),
        (100, {"resource": "cpu"}),  # a slot is not a core: many processes on one node are allowed
        (100, {"sizes": ()}),  # nodes cannot be listed
        (100, {"more_nodes": True}),
        (100, {"node_selector": {"zone": "nowhere"}}),  # no such node yet, so its size is unknown
        (1, {"requests": {"cpu": "128", "memory": "1Ti"}}),
    ],
)
def test_a_shape_that_may_fit_is_not_refused(processes, changes):
    assert said(processes, **changes) == ""


@pytest.mark.parametrize(
    ("processes", "own_nodes", "words"),
    [
        (4, 2, ""),
        (4, 3, "nodes 3: needs 3 nodes with 4 nvidia.com/gpu each, and the cluster has 2; lower nodes to 2"),
        (8, 2, "nodes 2: needs 2 nodes with 8 nvidia.com/gpu each, and the cluster has 1; lower nodes to 1"),
    ],
)
def test_more_whole_nodes_than_the_cluster_has_are_refused_with_their_number(processes, own_nodes, words):
    assert said(processes, nodes=own_nodes, own_nodes=own_nodes) == words
    assert said(processes, nodes=own_nodes, own_nodes=own_nodes, more_nodes=True) == ""


def test_only_selected_nodes_with_enough_of_the_other_resources_count():
    assert "the largest node has 4" in said(8, node_selector={"zone": "a"})
    assert "the largest node has 4" in said(
        8, sizes=(SMALL, Size({"cpu": "1", "nvidia.com/gpu": "8"}, {})), requests={"cpu": "4"}
    )


def test_a_cluster_without_such_a_device_is_refused():
    assert said(1, sizes=(PLAIN,)).endswith("the largest node has 0; choose another queue")


def test_memory_that_no_node_has_is_refused_with_the_setting_and_the_largest_node():
    assert said(1, limits={"memory": "2Ti"}).startswith("OPTIONS.REQUESTS.memory 2Ti: ")
    assert "the largest node has 1Ti" in said(1, limits={"memory": "2Ti"})


def test_two_resources_that_no_single_node_has_together_are_refused():
    sizes = (Size({"cpu": "64", "memory": "1Gi"}, {}), Size({"cpu": "1", "memory": "64Gi"}, {}))
    assert "does not fit on any node" in said(1, sizes=sizes, requests={"cpu": "2", "memory": "2Gi"})


def test_quantities_are_parsed_in_kubernetes_notation():
    assert [quantity(text) for text in ("1", "500m", "2Ki", "1k", "1.5G", "nonsense")] == [1, 0.5, 2048, 1000, 1.5e9, 0]


@pytest.mark.parametrize(
    "absurd", [None, {}, {"status": {"allocatable": ["x"]}}, {"status": {"allocatable": {"cpu": None}}}]
)
def test_malformed_nodes_have_no_resources(absurd):
    assert not read_size(absurd).has("cpu", "1")
