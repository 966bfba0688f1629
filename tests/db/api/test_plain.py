"""A plain job as API and plan take it: its framework's own fields beside those of every job."""

import pytest

from accounts.models import Token
from jobs.models import Job
from tests.db.api.test_api import Api

pytestmark = pytest.mark.django_db

SENT = {
    "queue": "default", "framework": "plain", "command": ["python", "train.py"], "nodes": 2, "nproc_per_node": 1,
    "helper_command": ["python", "serve.py"], "helpers": 1, "helper_memory": "8Gi",
}  # fmt: skip


@pytest.fixture
def api(client, people):
    return Api(client, Token.issue(people.owner, "test")[1])


def test_a_job_returns_the_fields_of_its_framework(api, queue):
    answer = api.post("/jobs", SENT)
    assert answer.status_code == 201, answer.json()
    job = answer.json()
    assert job["options"] == {"helper_command": ["python", "serve.py"], "helpers": 1, "helper_memory": "8Gi"}
    assert (job["framework"], job["nodes"], job["ranks"]["total"]) == ("plain", 2, 3)


def test_the_plan_names_both_roles(api, queue):
    plan = api.post("/plans", SENT).json()
    assert [(one["name"], one["replicas"], one["processes"]) for one in plan["roles"]] == [
        ("worker", 2, 1),
        ("helper", 1, 1),
    ]
    assert plan["asked"] == {"cpu": 2} and plan["distribution"]["world_size"] == 3


def test_all_problems_of_its_fields_come_at_once(api, queue):
    answer = api.post("/jobs", {**SENT, "helpers": 0, "helper_memory": "much", "helper_cpu": "five"})
    assert answer.status_code == 422
    assert {one["field"] for one in answer.json()["errors"]} == {"helpers", "helper_memory", "helper_cpu"}
    assert not Job.objects.exists()


def test_a_field_of_another_framework_names_that_one(api, queue):
    other = {
        name: value for name, value in SENT.items() if name not in ("framework", "helper_command", "helper_memory")
    }
    (problem,) = api.post("/jobs", other).json()["errors"]
    assert problem["field"] == "helpers" and "set framework=plain" in problem["message"]
