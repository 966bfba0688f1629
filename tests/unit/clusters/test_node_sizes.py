"""A shape that no node could ever take is refused with the nearest shape that fits; every other shape passes."""

from dataclasses import replace

import pytest

from jobs import frameworks
from jobs.clusters.kubernetes.facts.sizes import Size, placement, read_size
from jobs.core.plan import Role
from jobs.core.spec import parse
from queues.shape import ReplicaShape, of_resources
from tests.support.kube_site import site_of

SMALL = Size({"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}, {"zone": "a"})
LARGE = Size({"cpu": "128", "memory": "1Ti", "nvidia.com/gpu": "8"}, {"zone": "b"})
PLAIN = Size({"cpu": "500m", "memory": "2Gi"}, {"zone": "c"})
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def worker(slots: int, nodes: int = 1, **shape) -> Role:
    return Role("worker", nodes, slots, ("true",), shape=ReplicaShape(**shape))


def said(*roles: Role, sizes=(SMALL, LARGE, PLAIN), resource="gpu", node_slots=0, **options) -> str:
    found = placement(roles, resource=resource, node_slots=node_slots, site=site_of(**options), nodes=sizes).problem
    return f"{found.field} {found.value}: {found.message}" if found else ""


def warned(*roles: Role, sizes, **options) -> tuple[str, ...]:
    found = placement(roles, resource="gpu", node_slots=0, site=site_of(**options), nodes=sizes)
    assert found.problem is None
    return found.warnings


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
    assert said(worker(processes, nodes)) == (
        f"nproc_per_node {processes}: needs {processes} nvidia.com/gpu on one node, and the largest node has 8; use {way_out}"
    )


@pytest.mark.parametrize(
    ("processes", "changes"),
    [
        (8, {}),
        (100, {"resource": "cpu"}),  # a slot is not a core: many processes on one node are allowed
        (100, {"sizes": ()}),  # nodes cannot be listed
        (100, {"MORE_NODES": True}),
        (100, {"NODE_SELECTOR": {"zone": "nowhere"}}),  # no such node yet, so its size is unknown
        (1, {"REQUESTS": {"cpu": "128", "memory": "1Ti"}}),
    ],
)
def test_a_shape_that_may_fit_is_not_refused(processes, changes):
    assert said(worker(processes), **changes) == ""


@pytest.mark.parametrize(
    ("processes", "nodes", "words"),
    [
        (4, 2, ""),
        (4, 3, "nodes 3: needs 3 nodes with 4 nvidia.com/gpu each, and the cluster has 2; lower nodes to 2"),
        (8, 2, "nodes 2: needs 2 nodes with 8 nvidia.com/gpu each, and the cluster has 1; lower nodes to 1"),
    ],
)
def test_more_whole_nodes_than_the_cluster_has_are_refused_with_their_number(processes, nodes, words):
    assert said(worker(processes, nodes), node_slots=processes) == words
    assert said(worker(processes, nodes), node_slots=processes, MORE_NODES=True) == ""


def test_replicas_beyond_the_room_of_all_nodes_are_refused():
    assert said(worker(2, 4)) == ""
    assert said(worker(2, 6)) == ""  # two on the small node, four on the large one
    assert said(worker(2, 7)).startswith(
        "nodes 7: needs 7 worker with nvidia.com/gpu 2 each at once, and the nodes have room for 6"
    )
    assert said(worker(2, 6, limits={"memory": "512Gi"})).endswith("room for 2; lower nodes or the amounts")
    full = Size({"cpu": "8", "pods": "3"}, {})
    assert "room for 3" in said(worker(1, 4), sizes=(full,), resource="cpu", REQUESTS={"cpu": "1"})


def test_an_elastic_role_needs_room_for_its_fewest_replicas_alone():
    role = Role("worker", 100, 8, ("true",), least=1)
    assert said(role, node_slots=8) == ""


def test_a_role_s_own_amounts_count_in_place_of_the_cluster_s():
    """Lowered below the cluster's REQUESTS it fits; raised beyond every node it does not, and the field is named."""
    small = Size({"cpu": "8", "memory": "32Gi"}, {})
    asked = {"sizes": (small,), "resource": "cpu", "REQUESTS": {"memory": "64Gi"}}
    assert said(worker(1), **asked).startswith("OPTIONS.REQUESTS.memory 64Gi: ")
    assert said(worker(1, requests={"memory": "8Gi"}), **asked) == ""
    assert said(worker(1, requests={"memory": "10Ti"}), sizes=(small,), resource="cpu") == (
        "roles.worker.memory 10Ti: is more than any node has; the largest has 32Gi, so lower it"
    )


def test_every_role_counts_and_all_of_them_together():
    node = Size({"cpu": "8", "memory": "32Gi"}, {})
    head = Role("head", 1, 0, ("true",), shape=of_resources(memory="20Gi"))
    other = Role("worker", 1, 1, ("true",), shape=of_resources(memory="20Gi"))
    assert said(head, sizes=(node,), resource="cpu") == said(other, sizes=(node,), resource="cpu") == ""
    assert said(head, other, sizes=(node, node), resource="cpu") == ""
    assert said(head, other, sizes=(node,), resource="cpu") == (
        "roles.head.memory 20Gi: needs memory 1 x 20Gi for head and 1 x 20Gi for worker at once, which is more than all "
        "nodes have together; lower it, or lower nodes"
    )
    huge = Role("head", 1, 0, ("true",), shape=of_resources(memory="10Ti"))
    assert said(huge, other, sizes=(node,), resource="cpu").startswith(
        "roles.head.memory 10Ti: is more than any node has"
    )


@pytest.mark.parametrize("framework", ["ray", "monarch"])
def test_a_head_or_controller_without_devices_needs_no_node_of_its_own(framework):
    """Seed 000's own example: two hosts of eight GPUs and a controller, on two nodes."""
    sent = {"command": "python train.py", "framework": framework, "nodes": 2, "nproc_per_node": 8}
    roles = frameworks.roles(parse(sent, options=frameworks.OPTIONS))
    assert said(*roles, sizes=(LARGE, LARGE), node_slots=8) == ""
    assert "the cluster has 1" in said(*roles, sizes=(LARGE, SMALL), node_slots=8)


def test_only_selected_nodes_with_enough_of_the_other_resources_count():
    assert "the largest node has 4" in said(worker(8), NODE_SELECTOR={"zone": "a"})
    assert "the largest node has 4" in said(worker(8, node_selector={"zone": "a"}))
    assert "the largest node has 4" in said(
        worker(8), sizes=(SMALL, Size({"cpu": "1", "nvidia.com/gpu": "8"}, {})), REQUESTS={"cpu": "4"}
    )


def test_a_job_cannot_leave_the_nodes_of_its_cluster_s_settings():
    words = said(worker(1, node_selector={"zone": "b"}), NODE_SELECTOR={"zone": "a"})
    assert words == "roles.worker.node_selector.zone b: is a for every job of this cluster; remove it"


def test_a_selector_that_no_node_has_is_a_warning():
    role = worker(1, node_selector={"pool": "a1000", "zone": "a"})
    assert warned(role, sizes=(SMALL,)) == (
        "no node has the labels pool=a1000, zone=a today; worker waits until one has",
    )


@pytest.mark.parametrize(
    ("toleration", "is_warned"),
    [
        (None, True),
        ({"key": "gpu", "operator": "Exists"}, False),
        ({"key": "gpu", "value": "yes", "effect": "NoSchedule"}, False),
        ({"key": "gpu", "value": "no"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists"}, False),
    ],
)
def test_taints_that_keep_a_role_from_every_node_it_fits_on_are_a_warning(toleration, is_warned):
    tainted = Size(LARGE.amounts, {}, (TAINT,))
    role = worker(8, tolerations=(toleration,) if toleration else ())
    assert bool(warned(role, sizes=(tainted, SMALL))) is is_warned
    assert not warned(role, sizes=(tainted, LARGE))
    if is_warned:
        assert "the taint gpu=yes:NoSchedule" in warned(role, sizes=(tainted,))[0]


def test_a_cluster_without_such_a_device_is_refused():
    assert said(worker(1), sizes=(PLAIN,)).endswith("the largest node has 0; choose another queue")


def test_memory_that_no_node_has_is_refused_with_the_setting_and_the_largest_node():
    assert said(worker(1), LIMITS={"memory": "2Ti"}).startswith("OPTIONS.REQUESTS.memory 2Ti: ")
    assert "the largest node has 1Ti" in said(worker(1), LIMITS={"memory": "2Ti"})


def test_two_resources_that_no_single_node_has_together_are_refused():
    sizes = (Size({"cpu": "64", "memory": "1Gi"}, {}), Size({"cpu": "1", "memory": "64Gi"}, {}))
    assert "does not fit on any node" in said(worker(1), sizes=sizes, REQUESTS={"cpu": "2", "memory": "2Gi"})


@pytest.mark.parametrize(
    "absurd",
    [None, {}, {"status": {"allocatable": ["x"]}}, {"status": {"allocatable": {"cpu": None}}}, {"spec": {"taints": 3}}],
)
def test_malformed_nodes_have_no_resources(absurd):
    assert not read_size(absurd).has("cpu", "1")


def without(*names: str, sizes, **asked) -> tuple[str, ...]:
    role = worker(8, **asked)
    found = placement([role], resource="gpu", node_slots=8, site=site_of(), nodes=sizes, excluded=names)
    assert found.problem is None, "an excluded node may be readmitted"
    return found.warnings


def test_a_job_that_fits_only_on_excluded_nodes_is_warned():
    sizes = [replace(LARGE, name=f"gpu-{number}") for number in range(5)]
    assert without("gpu-1", sizes=sizes, nodes=4) == ()
    assert without("gpu-1", "other", sizes=sizes, nodes=5) == (
        "without node gpu-1, which administrators excluded, it does not fit: "
        "needs 5 nodes with 8 nvidia.com/gpu each, and the cluster has 4; lower nodes to 4",
    )
    (all_of_them,) = without(*(one.name for one in sizes), sizes=sizes)
    assert all_of_them == (
        "without nodes gpu-0, gpu-1, gpu-2 and 2 more, which administrators excluded, it does not fit"
    )
