"""Elastic jobs in Postgres: asked for, dry run, and seen rank by rank."""

import pytest

from accounts.models import Token
from jobs import ingest
from jobs.models import Job
from tests.builders import batch, identity, item
from tests.integration.test_api import SENT, Api

pytestmark = pytest.mark.django_db
T = 1_763_700_000.0


@pytest.fixture
def api(client, people) -> Api:
    return Api(client, Token.issue(people.owner, "test")[1])


def test_a_plan_and_a_job_tell_the_least_and_the_most(api, queue):
    asked = {**SENT, "command": ["torchrun", "--nnodes=1:2", "train.py"]}
    del asked["nodes"]
    plan = api.post("/plans", asked).json()
    assert plan["distribution"] == {"nodes": 2, "min_nodes": 1, "nproc_per_node": 2, "world_size": 4}
    assert plan["asked"] == {"cpu": 4}  # the whole of it: what may come back must have room
    job = api.post("/jobs", asked).json()
    assert (job["nodes"], job["min_nodes"]) == (2, 1)
    assert Job.objects.get().slots == 4


def test_a_contradiction_is_refused_at_its_field(api, queue):
    answer = api.post("/jobs", {**SENT, "min_nodes": 3})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["field"], problem["value"]) == ("min_nodes", 3)


def test_a_rank_is_known_by_its_place_and_tells_what_torchrun_calls_it(api, lab):
    job = lab.running(min_nodes=1)
    running = item("rank", rank=3, local_rank=1, pid=7, state="running", at=T, world_rank=1, world_size=2)
    ingest.apply(identity=identity(job, 1), batch=batch(1, running))
    ranks = api.get(f"/jobs/{job.pk}/ranks").json()["results"]
    assert [(one["rank"], one["world_rank"], one["world_size"]) for one in ranks][2:] == [(2, None, None), (3, 1, 2)]
