"""What no queue can run, whatever the framework: refused with the field, and nothing is left behind."""

import pytest

from accounts.models import Token
from jobs import frameworks
from jobs.models import Job
from tests.db.api.test_api import Api

pytestmark = pytest.mark.django_db

EVERY = pytest.mark.parametrize("framework", sorted(frameworks.REGISTRY))


@pytest.fixture
def api(client, people):
    return Api(client, Token.issue(people.owner, "test")[1])


def refusal(api, **sent) -> dict[str, str]:
    command = ["torchrun" if sent["framework"] == "torchrun" else "python3", "train.py"]
    answer = api.post("/jobs", {"queue": "default", "command": command, **sent})
    assert answer.status_code == 422, answer.json()
    assert not Job.objects.exists()
    return {one["field"]: one["message"] for one in answer.json()["errors"]}


@EVERY
def test_more_replicas_than_the_queue_has_room_for(api, queue, framework):
    said = refusal(api, framework=framework, nodes=9, nproc_per_node=1)["nodes"]
    assert "9 x 1" in said and "queue default has 8 CPU slots in all" in said and "lower nodes" in said


@EVERY
def test_gpus_of_a_queue_that_has_none(api, queue, framework):
    assert refusal(api, framework=framework, gpus=1) == {
        "gpus": "this queue's nodes have no GPUs; use 0, or choose another queue"
    }


def test_a_total_of_gpus_beside_a_master_with_a_number_of_its_own(api, queue):
    queue.gpus_per_node = 4
    queue.save()
    said = refusal(api, framework="torchrun", gpus=8, master_processes=2)
    assert said == {
        "gpus": "is split evenly over all nodes, but master_processes is 2; give nodes and nproc_per_node instead"
    }
