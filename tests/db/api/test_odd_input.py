"""Malformed input that no client of ours sends is answered with 400, field, value and remedy, never with a 500."""

import base64
import json
import tracemalloc
import zlib

import pytest
from rest_framework import serializers

from accounts.models import Token
from common.errors import MOST_PROBLEMS, Unreadable
from common.http import json_input

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
DEEP = 500  # deep enough to parse, but to fail in later processing
# The text of a JSON value, and a word of the expected message.
VALUES = {
    '"a\\u0000b"': "NUL",
    '"\\ud800"': "surrogate",
    '"a\\udfffb"': "surrogate",
    "Infinity": "finite",
    "-Infinity": "finite",
    "NaN": "finite",
    "1e999": "finite",
    "[" * DEEP + "]" * DEEP: "deeper",
    '{"a":' * DEEP + "1" + "}" * DEEP: "deeper",
    "[" * 50_000 + "]" * 50_000: "deeper",
}
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


def refused(answer, field=None, word=""):
    assert answer.status_code == 400, (answer.status_code, answer.content[:300])
    assert answer.headers["Content-Type"] == "application/problem+json"
    (problem,) = answer.json()["errors"]
    assert set(problem) == {"field", "value", "message"} and word in problem["message"]
    assert field is None or problem["field"] == field, problem
    return problem


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("path", ["/jobs", "/plans"])
@pytest.mark.parametrize("field", ["name", "command", "nodes", "env", "volumes", "queue", "workspace", "surplus"])
def test_a_job_with_a_malformed_value_is_refused_with_its_field(api, queue, path, field, value):
    text = json.dumps({**SENT, field: "@"}).replace('"@"', value)
    refused(api("POST", path, text), None if len(value) > 2 * DEEP else field, VALUES[value])


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/login", "username"), ("POST", "/tokens", "name"), ("POST", "/teams", "name"), ("POST", "/queues", "name"),
        ("PATCH", "/queues/default", "description"), ("PUT", "/teams/nlp/members/owner", "role"), ("POST", "/jobs/bulk", "act"),
        ("POST", "/teams/nlp/service-accounts", "name"), ("POST", "/workspaces", "team"), ("POST", "/workspaces/missing", "team"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ['"\\u0000"', '"\\ud800"', "NaN", "1e999", "[" * DEEP + "]" * DEEP])
def test_malformed_values_are_refused_in_every_other_body_too(api, queue, method, path, name, value):
    refused(api(method, path, f'{{"{name}": {value}}}'), name, VALUES.get(value, ""))


def test_a_malformed_key_is_named_with_escapes(api, queue):
    found = refused(api("POST", "/jobs", '{"env": {"\\ud800": "x"}}'), word="surrogate")
    assert found["field"] == "env.\\ud800" and found["value"] == "\\ud800"


@pytest.mark.parametrize("value", ["[1]", '"abc"', "5", "true"])
def test_secrets_that_are_not_a_mapping_are_refused_with_an_idempotency_key_too(api, queue, value):
    text = json.dumps({**SENT, "secrets": "@"}).replace('"@"', value)
    answer = api("POST", "/jobs", text, {"Idempotency-Key": "x"})
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "secrets"


@pytest.mark.parametrize("where", ['"secrets": {"A": %s}', '"password": %s', '"code": %s'])
def test_no_refusal_contains_the_value_of_a_secret(api, queue, where):
    answer = api("POST", "/jobs", "{" + where % '"hunter2\\u0000"' + "}")
    assert refused(answer)["value"] is None and b"hunter2" not in answer.content


def most_memory(act) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("head", ["%s", '{"a": %s}', "[%s]"])
def test_memory_use_is_bounded_for_a_long_key_above_a_long_list(head):
    """The name of the field used to be kept for each value: a body of 1 MB took 125 GB."""
    body = head % ('{"' + "k" * 20_000 + '": [' + "0," * 20_000 + "0]}")
    found = json_input.loads(body.encode())
    assert most_memory(lambda: json_input.refuse_unfit(found)) < 1_000_000


@pytest.mark.parametrize("value", ["0", "[]", "{}", '"a"', '{"a": 0}', "[" * 500 + "]" * 500])
def test_a_body_of_too_many_values_is_refused_before_it_is_built(value):
    count = json_input.MAX_VALUES // value.count("[") if "[" in value else json_input.MAX_VALUES
    body = b"[" + b",".join([value.encode()] * (count + 1)) + b"]"

    def read():
        with pytest.raises(Unreadable, match="more than 1,000,000 values"):
            json_input.loads(body)

    assert most_memory(read) < 1_000_000


def test_a_workspace_with_the_maximum_of_files_is_accepted():
    entry = {"path": "a" * 100, "kind": "file", "size": 1, "digest": "0" * 64, "executable": True}
    body = json.dumps({"set": [entry] * 100_000, "remove": ["a"] * 100_000}).encode()
    assert len(json_input.loads(body)["set"]) == 100_000


@pytest.mark.parametrize(
    ("found", "field"),
    [
        ({"a": [{"b": "\0"}]}, "a.0.b"), ([0, [1.5, float("inf")]], "1.1"), ("\0", "body"), ({"": {"": "\0"}}, "body"),
        ({"a": [[], {}, {"b": []}], "c": "\ud800"}, "c"), ({"a": {"b": {"\0": 1}}}, "a.b.\0"), ([[[]], "\0"], "1"),
    ],
)  # fmt: skip
def test_the_field_of_a_malformed_value_is_named(found, field):
    with pytest.raises(Unreadable) as refusal:
        json_input.refuse_unfit(found)
    assert refusal.value.problems[0].field == field


def test_a_user_who_may_not_upload_code_is_refused_before_the_body_is_parsed(client, people, monkeypatch):
    parsed = []
    monkeypatch.setattr(json_input, "loads", lambda *sent, **hooks: parsed.append(sent))
    headers = {"Authorization": f"Bearer {Token.issue(people.viewer, 'test', scope='submit')[1]}"}
    for path in ("/api/v1/workspaces", "/api/v1/workspaces/missing"):
        answer = client.post(path, "[0]", content_type="application/json", headers=headers)
        assert answer.status_code == 403 and "may not submit jobs in any team" in answer.json()["detail"]
    assert not parsed


def test_ordinary_depth_is_accepted():
    json_input.refuse_unfit({"env": {"A": "\N{GRINNING FACE} \x01"}, "volumes": ["a"], "nodes": 1.5})
    nested: list = []
    for _ in range(json_input.MAX_DEPTH - 1):
        nested = [nested]
    json_input.refuse_unfit(nested)


@pytest.mark.parametrize(
    "path", ["/jobs", "/teams", "/queues", "/tokens", "/audit", "/workspaces", "/teams/nlp/members"]
)
@pytest.mark.parametrize(
    "cursor",
    [
        "rubbish", "", "%", "\ud7ff", "p=1", "cD1hYmM=", "cj0xJnA9YWJj",
        *(base64.b64encode(text.encode()).decode() for text in ("p=abc", "p=-1", "p=1e3", "p=9" + "9" * 30, "p=\0", "o=x", "p=١")),
    ],
)  # fmt: skip
def test_an_invalid_cursor_of_a_list_is_refused(api, queue, path, cursor):
    answer = api("GET", path, after=cursor)
    if cursor in ("", "p=1", base64.b64encode(b"o=x").decode(), "%", "rubbish", "\ud7ff"):
        assert answer.status_code in (200, 400)  # contains no position, so it may be ignored
    else:
        assert answer.status_code == 400
    if answer.status_code == 400:
        refused(answer, "after", "omit it")


def packed(value) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "rubbish", "\N{GRINNING FACE}", packed("[1"), packed([1, 2, 3]), packed("[NaN, 0, 0, 0, []]"), packed("[Infinity, 0, 0, 0, []]"),
        packed([10**30, 0, 0, 0, []]), packed([2**31, 0, 0, 0, []]), packed([1, 2**63, 0, 0, []]), packed([1, 0, 0, 0, [[2**64, 0, 0]]]),
        packed([1, 0, 0, 0, [[1, 0, -5]]]), packed([1, 0, 0, 0, [["1", 0, 0]]]), packed("[1, 0, 0, 1e999, []]"), packed("[" * 100_000),
        packed([-1, 0, 0, 0, []]), packed({"a": 1}), packed([1, 0, 0, 0, [[1, 2**31, 3]]]), packed([1, 0, 0, 0, [1], [2**31], [5]]),
        packed([1, 0, 0, 0, [1, 0], [2**31 - 1, 1], [5, 5]]),
    ],
    ids=range(19),
)  # fmt: skip
@pytest.mark.parametrize("path", ["/logs", "/logs/stream"])
def test_an_invalid_cursor_of_a_log_is_refused(api, lab, path, cursor):
    refused(api("GET", f"/jobs/{lab.running().pk}{path}", cursor=cursor), "cursor", "omit it")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs?name=a%00b", "/api/v1/jobs?a%00b=1", "/api/v1/audit?actor=%00", "/api/v1/teams/a%00b", "/api/v1/queues/a%00b",
        "/api/v1/workspaces?team=%00", "/api/v1/teams/nlp/members/a%00b",
    ],
)  # fmt: skip
def test_a_nul_in_a_url_is_refused(client, as_, people, path):
    from urllib.parse import unquote

    head, _, query = path.partition("?")
    answer = as_(people.admin).get(unquote(head), query_params=None, QUERY_STRING=query)
    refused(answer, word="NUL")


@pytest.mark.parametrize("path", ["/jobs?q=%00", "/queues?x=a%00", "/login?next=%00", "/teams/nlp/audit?actor=%00"])
def test_pages_refuse_a_nul_with_an_html_page(as_, people, path):
    head, _, query = path.partition("?")
    answer = as_(people.admin).get(head, QUERY_STRING=query)
    assert answer.status_code == 400 and "NUL" in answer.text


@pytest.mark.parametrize("text", ["\n", "x\n", "x\r", "x ", "x\N{LINE SEPARATOR}"])
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
def test_a_name_with_trailing_whitespace_is_refused(api, queue, path, field, body, text):
    answer = api("POST", path, json.dumps({**body, field: text}))
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["errors"]] == [field]


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
    ("path", "field", "body"),
    [("/jobs/bulk", "ids", {"act": "cancel"}), ("/plans", "command", {"queue": "default"}), ("/jobs", "command", {"queue": "default"})],
)  # fmt: skip
@pytest.mark.parametrize("item", [0, [], "x", {}])
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
