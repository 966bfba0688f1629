"""A job that could never fit on any node of its cluster is refused when it is planned or submitted."""

import pytest

from common.errors import InvalidSpec, Problem
from jobs import clusters, services
from jobs.models import Job

pytestmark = pytest.mark.django_db


class Small:
    """The methods of a cluster adapter that submissions call; its nodes have four slots."""

    MOUNTS = HAS_NODES = SEPARATES = FINDS_BY_NAME = True
    OPERATORS = frozenset()

    def placement_problem(self, *, slots: int, nodes: int, resource: str, own_nodes: int = 0) -> Problem | None:
        if slots <= 4:
            return None
        return Problem(
            "nproc_per_node", slots, f"the largest node has 4 {resource}; use nproc_per_node=4 on nodes={nodes * 2}"
        )


@pytest.fixture(autouse=True)
def small(lab, settings):
    settings.CLUSTERS = {**settings.CLUSTERS, lab.queue.cluster: {"BACKEND": f"{__name__}.Small"}}
    clusters.adapters.clear()
    yield
    clusters.adapters.clear()


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
