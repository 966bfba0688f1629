"""A job that could never fit on any node of its cluster is refused when it is planned or submitted."""

import pytest

from common.errors import InvalidSpec, Problem
from jobs import clusters, services
from jobs.clusters import Placement
from jobs.models import Job
from queues.shape import ReplicaShape

pytestmark = pytest.mark.django_db


class Small:
    """The methods of a cluster adapter that submissions call; its nodes have four slots."""

    MOUNTS = HAS_NODES = SEPARATES = FINDS_BY_NAME = MAKES_PODS = True
    OPERATORS, shape = frozenset(), ReplicaShape(image="registry.example/train:1", limits={"memory": "8Gi"})

    def placement(self, roles, *, resource: str, node_slots: int, excluded=()) -> Placement:
        (role,) = roles
        if role.shape.needs.get("memory") == "10Ti":
            return Placement(Problem("roles.worker.memory", "10Ti", "is more than any node has"))
        if role.slots <= 4:
            return Placement(warnings=("every node is tainted",))
        words = f"the largest node has 4 {resource}; use nproc_per_node=4 on nodes={role.replicas * 2}"
        return Placement(Problem("nproc_per_node", role.slots, words))


@pytest.fixture(autouse=True)
def small(lab, settings):
    settings.CLUSTERS = {**settings.CLUSTERS, lab.queue.cluster: {"BACKEND": f"{__name__}.Small"}}


@pytest.mark.parametrize("act", [services.submit, services.preview])
def test_a_job_that_cannot_fit_is_refused_with_the_nearest_shape_that_does(lab, act):
    lab.queue.nominal = 64
    lab.queue.save()
    with pytest.raises(InvalidSpec) as refused:
        act(user=lab.user, queue=lab.queue, sent={"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 8})
    (problem,) = refused.value.problems
    assert (problem.field, problem.value) == ("nproc_per_node", 8)
    assert "use nproc_per_node=4 on nodes=2" in problem.message
    assert not Job.objects.exists()


def test_a_job_that_fits_is_accepted(lab):
    assert lab.submit(nodes=1, nproc_per_node=4).phase == "queued"


SENT = {"command": "torchrun train.py", "nodes": 1, "nproc_per_node": 1}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"memory": "10Ti"}, "memory"),
        ({"worker_memory": "10Ti"}, "worker_memory"),
        ({"roles": {"worker": {"memory": "10Ti"}}}, "roles.worker.memory"),
    ],
)
def test_a_problem_names_the_field_that_the_value_came_from(lab, more, field):
    with pytest.raises(InvalidSpec) as refused:
        services.submit(user=lab.user, queue=lab.queue, sent={**SENT, **more})
    (problem,) = refused.value.problems
    assert (problem.field, problem.value) == (field, "10Ti")


def test_shared_memory_beyond_the_memory_is_refused(lab):
    with pytest.raises(InvalidSpec) as refused:
        services.submit(user=lab.user, queue=lab.queue, sent={**SENT, "shm": "16Gi"})
    assert str(refused.value).startswith("shm: is more than memory 8Gi")


def test_what_keeps_a_job_waiting_today_is_a_note_of_its_plan(lab):
    assert "every node is tainted" in services.preview(user=lab.user, queue=lab.queue, sent=SENT).notes


def test_a_plan_shows_the_cluster_s_settings_below_the_job_s(lab):
    found = services.preview(user=lab.user, queue=lab.queue, sent={**SENT, "cpu": "4"})
    (role,) = found.roles
    assert (role.shape.image, role.shape.limits) == ("registry.example/train:1", {"memory": "8Gi", "cpu": "4"})


def test_what_the_cluster_allows_for_shared_memory_bounds_no_small_role(lab, small):
    clusters.get(lab.queue.cluster).shape = ReplicaShape(image="x:1", shm="8Gi")
    services.submit(user=lab.user, queue=lab.queue, sent={**SENT, "memory": "4Gi"})
    with pytest.raises(InvalidSpec, match="shm: is more than memory 4Gi"):
        services.submit(user=lab.user, queue=lab.queue, sent={**SENT, "memory": "4Gi", "shm": "6Gi"})
