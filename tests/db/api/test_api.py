"""/api/v1 as scripts use it: real requests through all middleware."""

import time

import pytest

from accounts.models import Membership, Role, Team, Token
from jobs.ingest import apply
from jobs.models import Job
from queues.models import Queue
from tests.support.builders import batch, identity, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]


class Api:
    def __init__(self, client, token: str = ""):
        self.client = client
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path, **query):
        return self.client.get(f"/api/v1{path}", query, headers=self.headers)

    def post(self, path, body=None, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(
            f"/api/v1{path}", body or {}, content_type="application/json", headers={**self.headers, **named}
        )


@pytest.fixture
def as_(client, people):
    return lambda who: Api(client, Token.issue(getattr(people, who), "test")[1])


@pytest.fixture
def api(as_) -> Api:
    return as_("owner")


SENT = {"queue": "default", "command": ["torchrun", "train.py"], "nodes": 2, "nproc_per_node": 2}


def test_a_job_is_submitted_listed_and_shown(api, queue):
    answer = api.post("/jobs", SENT)
    assert answer.status_code == 201, answer.json()
    job = answer.json()
    assert (job["phase"], job["nodes"], job["ranks"]["total"]) == ("queued", 2, 4)
    assert job["url"].endswith(f"/jobs/{job['id']}")
    assert api.get("/jobs").json()["results"][0]["id"] == job["id"]
    assert api.get(f"/jobs/{job['id']}").json()["name"] == job["name"]


def test_a_repeated_idempotency_key_returns_the_same_job(api, queue):
    first = api.post("/jobs", SENT, Idempotency_Key="abc")
    again = api.post("/jobs", SENT, Idempotency_Key="abc")
    other = api.post("/jobs", SENT)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 201)
    assert first.json()["id"] == again.json()["id"] != other.json()["id"]


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["torchrun", "other.py"]},
        {"nodes": 1},
        {"env": {"A": "1"}},
        {"secrets": {"HF": "2"}},
        {"secrets": {}},
    ],
)
def test_a_key_reused_with_another_request_is_refused_and_both_are_named(api, queue, change):
    sent = {**SENT, "secrets": {"HF": "1"}}
    first = api.post("/jobs", sent, Idempotency_Key="abc").json()
    answer = api.post("/jobs", {**sent, **change}, Idempotency_Key="abc")
    assert answer.status_code == 409
    said = answer.json()["detail"]
    assert "Idempotency-Key 'abc'" in said
    assert f"{first['name']} (id {first['id']})" in said
    assert Job.objects.count() == 1


def test_a_key_stored_without_a_digest_still_returns_its_job(api, queue):
    first = api.post("/jobs", SENT, Idempotency_Key="abc").json()
    Job.objects.update(request_digest=None)
    again = api.post("/jobs", {**SENT, "nodes": 1}, Idempotency_Key="abc")
    assert (again.status_code, again.json()["id"]) == (200, first["id"])


def test_a_key_is_scoped_to_one_team(client, queue, people):
    other = Team.objects.create(name="speech")
    Membership.objects.create(user=people.owner, team=other, role=Role.MEMBER)
    Queue.objects.create(name="second", team=other, cluster=queue.cluster, nominal=8)
    theirs = Api(client, Token.issue(people.owner, "all")[1]).post("/jobs", SENT, Idempotency_Key="abc")
    limited = Api(client, Token.issue(people.owner, "one", team=other)[1])
    answer = limited.post("/jobs", {**SENT, "queue": "second"}, Idempotency_Key="abc")
    assert (theirs.status_code, answer.status_code) == (201, 201)
    assert answer.json()["team"] == "speech"
    assert answer.json()["id"] != theirs.json()["id"]


def test_resubmitting_two_jobs_with_one_key_is_a_conflict(api, queue):
    one, other = (api.post("/jobs", SENT).json()["id"] for _ in range(2))
    made = api.post(f"/jobs/{one}/resubmit", Idempotency_Key="again")
    assert api.post(f"/jobs/{one}/resubmit", Idempotency_Key="again").json()["id"] == made.json()["id"]
    assert api.post(f"/jobs/{other}/resubmit", Idempotency_Key="again").status_code == 409


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"queue": "nosuch"}, "queue", "yours are: default"),
        ({"nodes": 0}, "nodes", "from 1 to 4096"),
        ({"nodes": -1}, "nodes", "from 1 to 4096"),
        ({"nodes": 10**12}, "nodes", "from 1 to 4096"),
        ({"nodes": 100}, "nodes", "has 8 CPU slots in all"),
        ({"command": []}, "command", "is missing"),
        ({"nodez": 1}, "nodez", "not a field"),
        ({"workspace": 99}, "workspace", "upload the code first"),
        ({"env": {"RANK": "1"}}, "env.RANK", "set by torchrun"),
        ({"framework": "horovod"}, "framework", "choose one of monarch, plain, "),
    ],
)
def test_bad_input_names_the_field_the_value_and_the_remedy(api, queue, change, field, words):
    answer = api.post("/jobs", {**SENT, **change})
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    assert any(one["field"] == field and words in one["message"] for one in answer.json()["errors"]), answer.json()
    assert Job.objects.count() == 0


def test_a_body_that_is_not_json_is_answered_with_a_problem(api):
    answer = api.client.post("/api/v1/jobs", "{", content_type="application/json", headers=api.headers)
    assert answer.status_code == 400
    assert answer.json()["status"] == 400


def test_suspend_resume_and_cancel_change_intent_and_return_the_job(api, lab):
    job = lab.running()
    assert api.post(f"/jobs/{job.pk}/suspend").json()["suspended"] is True
    assert api.post(f"/jobs/{job.pk}/resume").json()["suspended"] is False
    assert api.post(f"/jobs/{job.pk}/cancel").status_code == 200
    assert lab.visit(job, times=3).phase == "cancelled"
    refused = api.post(f"/jobs/{job.pk}/suspend")
    assert (refused.status_code, "resubmit" in refused.json()["detail"]) == (409, True)
    for act, words in (("suspend", "cannot be suspended"), ("resume", "cannot be resumed")):
        assert words in api.post(f"/jobs/{job.pk}/{act}").json()["detail"]
    again = api.post(f"/jobs/{job.pk}/resubmit")
    assert again.status_code == 201
    assert again.json()["command"] == ["torchrun", "train.py"]


def test_a_rank_that_was_never_reported_is_unseen_after_the_end(api, lab):
    job = lab.running()
    assert {one["is_unseen"] for one in api.get(f"/jobs/{job.pk}/ranks").json()["results"]} == {False}
    lab.finish(job, 0, 0)
    assert {one["is_unseen"] for one in api.get(f"/jobs/{job.pk}/ranks").json()["results"]} == {True}


def test_ranks_events_replicas_logs_and_metrics_are_read(api, lab):
    job = lab.running()
    at = int(time.time())
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(at, "hello <b>")])))
    assert [rank["rank"] for rank in api.get(f"/jobs/{job.pk}/ranks").json()["results"]] == [0, 1, 2, 3]
    assert len(api.get(f"/jobs/{job.pk}/replicas").json()["results"]) == 2
    assert api.get(f"/jobs/{job.pk}/events").json()["results"][0]["kind"] == "submitted"
    page = api.get(f"/jobs/{job.pk}/logs").json()
    assert page["lines"] == [
        {"rank": 0, "replica": "worker-0", "attempt": 1, "at_ms": at * 1000, "text": "hello <b>", "is_gap": False}
    ]
    assert api.get(f"/jobs/{job.pk}/logs", cursor=page["cursor"]).json()["lines"] == []
    assert api.get(f"/jobs/{job.pk}/metrics").json() == {"series": []}
    assert api.get(f"/jobs/{job.pk}/logs", cursor="rubbish").status_code == 400
    assert api.get(f"/jobs/{job.pk}/logs", rank="three").status_code == 422
    for part in ("logs", "logs/stream", "logs/search", "logs/text"):
        refused = api.get(f"/jobs/{job.pk}/{part}", rank=99, **({"text": "x"} if part == "logs/search" else {}))
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["message"].endswith(f"has ranks 0 to {job.world_size - 1}"), refused.json()


def test_lists_are_filtered_and_paged_without_gaps(api, lab):
    made = [lab.submit().pk for _ in range(7)]
    seen, url = [], "/api/v1/jobs?limit=3"
    while url:
        page = api.client.get(url, headers=api.headers).json()
        seen += [job["id"] for job in page["results"]]
        url = page["next"]
    assert seen == made[::-1]
    assert len(api.get("/jobs", phase="queued").json()["results"]) == 7
    assert api.get("/jobs", phase="finished").json()["results"] == []
    assert len(api.get("/jobs", phase="queued,running").json()["results"]) == 7
    assert len(api.get("/jobs", phase="", queue="").json()["results"]) == 7


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("phase", "dreaming", "dreaming"),
        ("phase", "queued,dreaming", "dreaming"),
        ("phase", "active,queued", "active"),  # only valid alone
        ("phase", "queued,", ""),
        ("kind", "user_code,sabotage", "sabotage"),
    ],
)
def test_an_unknown_filter_value_is_refused_with_the_valid_ones(api, field, text, value):
    answer = api.get("/jobs", **{field: text})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["field"], problem["value"]) == (field, value)
    assert problem["message"].startswith("must be one of ") and "must be one of , " not in problem["message"]


def test_filters_of_the_list_are_no_parameters_of_a_single_job(api, lab):
    job = lab.submit()
    assert api.get(f"/jobs/{job.pk}/metrics", name="other").status_code == 200
    for path in ("", "/metrics", "/ranks"):
        answer = api.get(f"/jobs/{job.pk}{path}", phase="queued")
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "phase")


def test_the_query_count_of_a_job_list_is_constant(api, lab, django_assert_num_queries):
    lab.submit()
    api.get("/me")  # records that the token was used, at most once a minute
    with django_assert_num_queries(4):
        api.get("/jobs")
    for _ in range(5):
        lab.submit()
    with django_assert_num_queries(4):
        api.get("/jobs")


def test_queues_show_their_quota_and_its_use(api, lab):
    lab.running()
    (queue,) = api.get("/queues").json()["results"]
    assert (queue["nominal"], queue["used"], queue["team"]) == (8, 4, "nlp")


def test_login_returns_a_token_and_me_names_its_user(client, people):
    wrong = client.post("/api/v1/login", {"username": "owner", "password": "no"}, content_type="application/json")
    assert (wrong.status_code, wrong["WWW-Authenticate"]) == (401, "Bearer")
    right = client.post(
        "/api/v1/login", {"username": "owner", "password": "owner-has-a-password"}, content_type="application/json"
    )
    me = Api(client, right.json()["token"]).get("/me").json()
    assert (me["user"], me["teams"]) == ("owner", [{"name": "nlp", "role": "member"}])


def test_an_expired_revoked_or_forged_token_is_refused(client, people):
    from django.utils import timezone

    token, text = Token.issue(people.owner, "x")
    assert Api(client, text).get("/me").status_code == 200
    Token.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
    assert Api(client, text).get("/me").status_code == 401
    Token.objects.filter(pk=token.pk).update(revoked_at=None, expires_at=timezone.now())
    assert Api(client, text).get("/me").status_code == 401
    assert Api(client, text + "x").get("/me").status_code == 401


def test_the_schemas_version_is_no_ones_to_choose(api):
    answer = api.get("/schema?version=2%0a&format=json")
    assert answer.status_code == 200 and "\n" not in answer["Content-Disposition"]


def test_the_schema_is_complete(api):
    schema = api.get("/schema").content.decode()
    for path in ("/jobs/{id}/logs", "/workspaces", "/queues", "/login", "/me"):
        assert path in schema
