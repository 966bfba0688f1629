"""What a real API server says of its nodes, with and without the right to see them."""

from rig.world import let_see_nodes
from tests.cluster.conftest import until

ASKED = {"processes": 16, "nodes": 1, "resource": "gpu"}


def test_who_may_see_nodes_refuses_what_none_of_them_has(place):
    name = place.add_node(gpus=4)
    options = {"NODE_SELECTOR": {"kubernetes.io/hostname": name}}
    let_see_nodes(place.admin, place.namespace)

    def refused():
        """The server's own view of the new right comes a moment later; each look is a fresh process."""
        return place.cluster(**options).placement_problem(**ASKED)

    problem = until(refused)
    assert (problem.field, problem.value) == ("nproc_per_node", 16)
    assert problem.message.endswith("the largest node has 4; use nproc_per_node=4 on nodes=4")
    assert place.cluster(**options).placement_problem(processes=4, nodes=4, resource="gpu") is None


def test_who_may_not_see_nodes_refuses_nothing(place):
    assert place.cluster().placement_problem(**ASKED) is None
