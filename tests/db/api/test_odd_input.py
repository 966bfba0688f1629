"""Malformed input that no client of ours sends is answered with 400, field, value and remedy, never with a 500.

One row for each type of bad value and one request to each route; tests/unit/common/test_json_input.py,
tests/unit/core/test_cursor.py and tests/unit/core/test_spec.py try them in every combination.
"""

import base64
import json
from itertools import cycle
from urllib.parse import unquote

import pytest
from rest_framework import serializers

from accounts.models import Token
from common.errors import MOST_PROBLEMS
from common.http import json_input
from tests.unit.common.test_json_input import DEEP, VALUES

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
SENT = {"queue": "default", "command": ["torchrun", "train.py"], "env": {"A": "1"}, "nodes": 1}


@pytest.fixture
def api(client, people):
    """`api("POST", "/jobs", body text)` sends a request as a user who may do everything."""
    headers = {"Authorization": f"Bearer {Token.issue(people.admin, 'test', scope='manage')[1]}"}

    def ask(method, path, body=None, more=None, **query):
        sent = {} if body is None else {"data": body, "content_type": "application/json"}
        return client.generic(
            method, f"/api/v1{path}", headers=headers | (more or {}), query_params=query or None, **sent
        )

    return ask


def refused(answer, field=None, word="", *, at=""):
    assert answer.status_code == 400, (at, answer.status_code, answer.content[:300])
    assert answer.headers["Content-Type"] == "application/problem+json"
    (problem,) = answer.json()["errors"]
    assert set(problem) == {"field", "value", "message"} and word in problem["message"], (at, problem)
    assert field is None or problem["field"] == field, (at, problem)
    return problem


def test_a_job_with_a_malformed_value_is_refused_with_its_field(api, queue):
    fields = cycle(["name", "command", "nodes", "env", "volumes", "queue", "workspace", "surplus"])
    for value, field, path in zip(VALUES, fields, cycle(["/jobs", "/plans"]), strict=False):
        text = json.dumps({**SENT, field: "@"}).replace('"@"', value)
        refused(api("POST", path, text), None if len(value) > 2 * DEEP else field, VALUES[value], at=(path, value[:20]))


def test_a_malformed_value_is_refused_in_every_other_body_too(api, queue):
    bodies = [
        ("POST", "/login", "username"), ("POST", "/tokens", "name"), ("POST", "/teams", "name"), ("POST", "/queues", "name"),
        ("PATCH", "/queues/default", "description"), ("PUT", "/teams/nlp/members/owner", "role"), ("POST", "/jobs/bulk", "act"),
        ("POST", "/teams/nlp/service-accounts", "name"), ("POST", "/workspaces", "team"), ("POST", "/workspaces/missing", "team"),
    ]  # fmt: skip
    values = cycle(['"a\\u0000b"', '"\\ud800"', "NaN", "1e999", "[" * DEEP + "]" * DEEP])
    for (method, path, name), value in zip(bodies, values, strict=False):
        refused(api(method, path, f'{{"{name}": {value}}}'), name, VALUES[value], at=(method, path))


def test_a_malformed_key_is_named_with_escapes(api, queue):
    found = refused(api("POST", "/jobs", '{"env": {"\\ud800": "x"}}'), word="surrogate")
    assert found["field"] == "env.\\ud800" and found["value"] == "\\ud800"


def test_secrets_that_are_not_a_mapping_are_refused_with_an_idempotency_key_too(api, queue):
    for value in ("[1]", '"abc"', "5", "true"):
        text = json.dumps({**SENT, "secrets": "@"}).replace('"@"', value)
        answer = api("POST", "/jobs", text, {"Idempotency-Key": "x"})
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "secrets", value


def test_no_refusal_contains_the_value_of_a_secret(api, queue):
    answer = api("POST", "/jobs", '{"secrets": {"A": "hunter2\\u0000"}}')
    assert refused(answer)["value"] is None and b"hunter2" not in answer.content


def test_a_user_who_may_not_upload_code_is_refused_before_the_body_is_parsed(client, people, monkeypatch):
    parsed = []
    monkeypatch.setattr(json_input, "loads", lambda *sent, **hooks: parsed.append(sent))
    headers = {"Authorization": f"Bearer {Token.issue(people.viewer, 'test', scope='submit')[1]}"}
    for path in ("/api/v1/workspaces", "/api/v1/workspaces/missing"):
        answer = client.post(path, "[0]", content_type="application/json", headers=headers)
        assert answer.status_code == 403 and "may not submit jobs in any team" in answer.json()["detail"]
    assert not parsed


def position(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


MAY_BE_IGNORED = ("rubbish", "", "%", "\ud7ff", "p=1", position("o=x"))  # they contain no position


@pytest.mark.parametrize(
    "cursor",
    [
        *MAY_BE_IGNORED, "cD1hYmM=", "cj0xJnA9YWJj",
        *(position(text) for text in ("p=abc", "p=-1", "p=1e3", "p=9" + "9" * 30, "p=\0", "p=١")),
    ],
)  # fmt: skip
def test_an_invalid_cursor_of_a_list_is_refused(api, queue, cursor):
    answer = api("GET", "/jobs", after=cursor)
    if cursor not in MAY_BE_IGNORED or answer.status_code != 200:
        refused(answer, "after", "omit it")


def test_every_list_refuses_an_invalid_cursor(api, queue):
    for path in ("/jobs", "/teams", "/queues", "/tokens", "/audit", "/workspaces", "/teams/nlp/members"):
        refused(api("GET", path, after=position("p=abc")), "after", "omit it", at=path)


def test_an_invalid_cursor_of_a_log_is_refused(api, lab):
    job = lab.running().pk
    for path in ("/logs", "/logs/stream"):
        refused(api("GET", f"/jobs/{job}{path}", cursor="rubbish"), "cursor", "omit it", at=path)


def test_a_nul_in_a_url_is_refused(as_, people):
    admin = as_(people.admin)
    for path in (
        "/api/v1/jobs?name=a%00b", "/api/v1/jobs?a%00b=1", "/api/v1/audit?actor=%00", "/api/v1/teams/a%00b", "/api/v1/queues/a%00b",
        "/api/v1/workspaces?team=%00", "/api/v1/teams/nlp/members/a%00b",
    ):  # fmt: skip
        head, _, query = path.partition("?")
        refused(admin.get(unquote(head), query_params=None, QUERY_STRING=query), word="NUL", at=path)


def test_pages_refuse_a_nul_with_an_html_page(as_, people):
    admin = as_(people.admin)
    for path in ("/jobs?q=%00", "/queues?x=a%00", "/login?next=%00", "/teams/nlp/audit?actor=%00"):
        head, _, query = path.partition("?")
        answer = admin.get(head, QUERY_STRING=query)
        assert answer.status_code == 400 and "NUL" in answer.text, path


@pytest.mark.parametrize(
    ("path", "field", "body"),
    [
        ("/jobs", "name", SENT),
        ("/jobs", "queue", SENT),
        ("/teams", "name", {}),
        ("/queues", "name", {"team": "nlp", "cluster": "local", "slots": 1}),
        ("/teams/nlp/service-accounts", "name", {"role": "member"}),
    ],
)
def test_a_name_with_trailing_whitespace_is_refused(api, queue, path, field, body):
    for text in ("\n", "x\n", "x\r", "x ", "x\N{LINE SEPARATOR}"):
        answer = api("POST", path, json.dumps({**body, field: text}))
        assert answer.status_code == 422, text
        assert [one["field"] for one in answer.json()["errors"]] == [field], text


def test_a_number_too_large_for_its_column_is_no_server_error(api, queue):
    for body in ({"act": "cancel", "ids": [10**30]}, {"act": "cancel", "ids": [2**63]}):
        assert api("POST", "/jobs/bulk", json.dumps(body)).status_code < 500
    for field in ("workspace", "nodes", "priority", "deadline_seconds", "gpus"):
        assert api("POST", "/jobs", json.dumps({**SENT, field: 10**30})).status_code in (400, 422)


@pytest.fixture
def looked_at(monkeypatch):
    """Every value that a serializer field was asked to validate."""
    seen = []
    for field in (serializers.IntegerField, serializers.CharField):
        whole = field.run_validation
        monkeypatch.setattr(
            field, "run_validation", lambda self, data, whole=whole: seen.append(data) or whole(self, data)
        )
    return seen


@pytest.mark.parametrize(
    ("path", "field", "body", "item"),
    [
        ("/jobs/bulk", "ids", {"act": "cancel"}, {}),
        ("/plans", "command", {"queue": "default"}, 0),
        ("/jobs", "command", {"queue": "default"}, "x"),
        ("/jobs", "command", {"queue": "default"}, []),
    ],
)
def test_a_list_is_refused_for_its_length_before_its_items_are_validated(
    api, queue, looked_at, path, field, body, item
):
    """Half a million wrong ids in 1 MB used to take 23 s and 2 GB, and the answer had 48 MB."""
    answer = api("POST", path, json.dumps({**body, field: [item] * 100_000}))
    assert answer.status_code == 422 and len(answer.content) < 2000
    (problem,) = answer.json()["errors"]
    assert problem["field"] == field and "items; send fewer" in problem["message"]
    assert len(looked_at) < 100, "the fields of a job, not the items"


@pytest.mark.parametrize(
    ("path", "field", "body", "count"),
    [("/jobs/bulk", "ids", {"act": "cancel"}, 200), ("/plans", "command", {"queue": "default"}, 30_000)],
)
def test_only_the_first_few_invalid_items_of_a_list_are_reported(api, queue, looked_at, path, field, body, count):
    answer = api("POST", path, json.dumps({**body, field: [[]] * count}))
    problems = answer.json()["errors"]
    assert answer.status_code == 422 and len(answer.content) < 10_000 and len(looked_at) < 200
    assert [one["field"] for one in problems] == [f"{field}.{index}" for index in range(MOST_PROBLEMS)]
    assert "were not checked" in problems[-1]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs", SENT), ("POST", "/plans", SENT), ("POST", "/tokens", {"name": "x", "scope": "submit"}),
        ("PATCH", "/queues/default", {}), ("POST", "/teams/nlp/service-accounts", {"name": "x", "role": "member"}),
    ],
)  # fmt: skip
def test_only_the_first_few_unknown_fields_are_reported_with_a_count_of_the_rest(api, queue, method, path, body):
    answer = api(method, path, json.dumps({**body, **{f"f{number}": 0 for number in range(10_000)}}))
    problems = answer.json()["errors"]
    assert answer.status_code == 422 and len(answer.content) < 50_000
    assert len(problems) == MOST_PROBLEMS + 1
    assert problems[-1] == {
        "field": "body",
        "value": 10_000 - MOST_PROBLEMS,
        "message": "has 9,980 more problems; correct these first",
    }


@pytest.mark.parametrize("field", ["env", "secrets"])
def test_too_many_variables_are_reported_as_one_problem(api, queue, field):
    answer = api("POST", "/plans", json.dumps({**SENT, field: {f"0{number}": 0 for number in range(50_000)}}))
    (problem,) = answer.json()["errors"]
    assert (problem["field"], problem["value"]) == (field, 50_000) and "at most 500" in problem["message"]
