"""An operation refuses query parameters that it does not have, and takes those that its description lists."""

import pytest
from drf_spectacular.generators import SchemaGenerator

from accounts.models import Token

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(client, people):
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {Token.issue(people.owner, 'test')[1]}"
    return client


@pytest.mark.parametrize(
    ("path", "name", "known"),
    [
        ("/jobs?limt=5", "limt", "known are after, image, kind, limit, name"),
        ("/jobs/{job}?attempt=1", "attempt", "it has none"),
        ("/jobs/{job}/logs?ranks=1", "ranks", "attempt, cursor, limit, rank, replica, tail"),
        ("/jobs/{job}/ranks?page=2", "page", "known are"),
        ("/queues?team=vision&lmit=1", "team", "known are after, limit"),
        ("/workspaces?user=ada", "user", "known are after, limit, team"),
        ("/me?x=1", "x", "it has none"),
    ],
)
def test_an_unknown_parameter_is_refused_by_name(api, lab, path, name, known):
    job = lab.submit()
    answer = api.get("/api/v1" + path.format(job=job.pk))
    assert answer.status_code == 400, answer.content
    (problem, *_) = answer.json()["errors"]
    assert problem["field"] == name and known in problem["message"]


def test_a_write_with_an_unknown_parameter_does_nothing(api, lab):
    job = lab.submit()
    answer = api.post(f"/api/v1/jobs/{job.pk}/cancel?force=true", {}, content_type="application/json")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "force")
    job.refresh_from_db()
    assert job.phase == "queued"


def test_another_method_is_answered_as_such(api, lab):
    assert (
        api.post(f"/api/v1/jobs/{lab.submit().pk}/logs?text=x", {}, content_type="application/json").status_code == 405
    )


def test_every_described_parameter_of_a_list_is_taken(api, lab):
    """Those of the generated description: a parameter that only the code knows would be refused."""
    lab.submit()
    described = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    tried = 0
    for path, operations in described.items():
        names = [one["name"] for one in operations.get("get", {}).get("parameters", []) if one["in"] == "query"]
        for name in names if "{" not in path else ():
            answer = api.get(path, {name: ""})
            problems = answer.json().get("errors", []) if answer.status_code == 400 else []
            assert "is not a parameter" not in str(problems), (path, name)
            tried += 1
    assert tried > 20
