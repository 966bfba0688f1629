"""Which of a Ray cluster's waiting requests no node can hold, however long they wait."""

import pytest

from agent.frameworks.ray_cluster import ResourceRequest, of_group, unplaceable

HEAD = {"memory": 13350594970.0, "node:__internal_head__": 1.0}
WORKER = {"CPU": 2.0, "GPU": 1.0, "memory": 12956002304.0}
NODES = [HEAD, WORKER, {**WORKER, "GPU": 4.0}]
TASK = "a task or an actor"


def lines(*requests: ResourceRequest, nodes=NODES) -> list[str]:
    return list(unplaceable(requests, nodes).values())


@pytest.mark.parametrize(
    "amounts", [{}, {"CPU": 2.0}, {"GPU": 4.0, "CPU": 1.0}, {"GPU": 0.5}, {"memory": 12956002304.0}]
)
def test_what_fits_an_empty_node_may_wait(amounts):
    assert lines(ResourceRequest(TASK, amounts)) == []


def test_a_request_that_fits_no_node_is_named_with_the_node_that_has_most():
    (line,) = lines(ResourceRequest(TASK, {"CPU": 1.0, "GPU": 8.0}))
    assert (
        line
        == f'no node has what {TASK} asks for: {{"CPU": 1, "GPU": 8}}; the node with most has {{"CPU": 2, "GPU": 4}}'
    )


def test_no_node_has_both_though_each_has_one():
    nodes = [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}]
    (line,) = lines(ResourceRequest(TASK, {"CPU": 4.0, "GPU": 1.0}), nodes=nodes)
    assert line.endswith('the node with most has {"CPU": 1, "GPU": 1}')


def test_equal_requests_are_named_once():
    assert (
        len(
            lines(
                ResourceRequest(TASK, {"special": 1.0}),
                ResourceRequest(TASK, {"special": 1.0}),
                ResourceRequest(TASK, {"GPU": 8.0}),
            )
        )
        == 2
    )


def test_without_nodes_nothing_is_known():
    assert lines(ResourceRequest(TASK, {"CPU": 1.0}), nodes=[]) == []


@pytest.mark.parametrize(
    ("bundles", "strategy", "words"),
    [
        ([{"CPU": 1.0}] * 4, "PACK", []),
        ([{"CPU": 1.0}] * 2, "STRICT_PACK", []),
        ([{"CPU": 1.0}] * 2, "STRICT_SPREAD", []),
        ([{"CPU": 1.0}] * 5, "SPREAD", ['a placement group asks for 5 bundles of {"CPU": 1}; all nodes together can hold 4']),
        ([{"CPU": 2.0}, {"GPU": 5.0}], "PACK", ['no node has what a placement group asks for: {"GPU": 5}; the node with most has {"GPU": 4}']),
        ([{"CPU": 1.0}] * 4, "STRICT_PACK", ['no node has what a placement group asks for: {"CPU": 4}; the node with most has {"CPU": 2}']),
        ([{"CPU": 1.0}] * 3, "STRICT_SPREAD",
         ['a placement group asks for 3 bundles of {"CPU": 1} on different nodes; all nodes together can hold 2']),
    ],
)  # fmt: skip
def test_a_placement_group_has_to_fit_as_a_whole(bundles, strategy, words):
    assert lines(*of_group(bundles, strategy=strategy)) == words
