"""Placement checks against the nodes of a real API server, with and without permission to read them."""

from jobs.core.plan import Role
from rig.world import let_see_nodes
from tests.support.patience import until


def asked(slots: int, nodes: int = 1):
    return {"roles": [Role("worker", nodes, slots, ("true",))], "resource": "gpu", "node_slots": 0}


def test_with_permission_to_read_nodes_an_impossible_shape_is_refused(place):
    name = place.add_node(gpus=4)
    options = {"NODE_SELECTOR": {"kubernetes.io/hostname": name}}
    let_see_nodes(place.admin, place.namespace)

    def refused():
        """The new permission takes effect a moment later; each call uses a new adapter."""
        return place.cluster(**options).placement(**asked(16)).problem

    problem = until(refused)
    assert (problem.field, problem.value) == ("nproc_per_node", 16)
    assert problem.message.endswith("the largest node has 4; use nproc_per_node=4 on nodes=4")
    assert place.cluster(**options).placement(**asked(4)).problem is None


def test_without_permission_to_read_nodes_nothing_is_refused(place):
    assert place.cluster().placement(**asked(16)).problem is None
