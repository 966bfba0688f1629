"""/api/v1 beyond one job: attempts, plans, bulk actions, secrets, conditional requests."""

import json
import time

import pytest

from accounts.models import Token
from jobs.control import job_secrets
from jobs.control.store import plan_of
from jobs.ingest import apply
from jobs.models import Job
from tests.db.api.test_api import SENT, Api
from tests.support.builders import batch, identity, item, log_item

pytestmark = pytest.mark.django_db


@pytest.fixture
def as_(client, people):
    return lambda who: Api(client, Token.issue(getattr(people, who), "test")[1])


@pytest.fixture
def api(as_) -> Api:
    return as_("owner")


def test_attempts_report_when_and_why_each_ended(api, lab):
    job = lab.running(max_retries=1)
    ended = item("rank", rank=1, local_rank=1, state="failed", exit_code=3, at=1_763_700_000.0)
    apply.apply_batch(identity=identity(job), batch=batch(1, ended))
    job = lab.finish(job, 3, 3)
    first, second = api.get(f"/jobs/{job.pk}/attempts").json()["results"]
    assert (first["attempt"], first["outcome"], first["first_failing_rank"]) == (1, "admitted", 1)
    assert first["started_at"] <= first["running_at"] <= first["ended_at"]
    assert (second["attempt"], second["outcome"], second["ended_at"]) == (2, "", None)


def test_a_job_that_never_started_has_no_attempts(api, lab):
    assert api.get(f"/jobs/{lab.submit().pk}/attempts").json()["results"] == []


def test_a_plan_predicts_a_submission_and_creates_no_job(api, queue):
    plan = api.post("/plans", {**SENT, "command": ["python", "train.py"]}).json()
    assert plan["distribution"] == {"nodes": 2, "min_nodes": None, "nproc_per_node": 2, "world_size": 4}
    (role,) = plan["roles"]
    assert role.pop("pod")["image"] == ""  # a cluster of processes has no images
    assert role == {"name": "worker", "replicas": 2, "processes": 2, "command": ["torchrun", "train.py"]}
    assert (plan["asked"], plan["fits_now"], plan["wait_reason"]) == ({"cpu": 4}, True, "")
    assert Job.objects.count() == 0


def test_a_command_given_as_one_word_is_split_and_this_is_noted(api, queue):
    sent = {**SENT, "command": ["python train.py --name 'two words'"]}
    plan = api.post("/plans", sent).json()
    words = ["torchrun", "train.py", "--name", "two words"]
    assert plan["roles"][0]["command"] == plan["spec"]["command"] == words
    note = plan["notes"][0]
    assert note.startswith("the command was given as one word") and "python train.py --name 'two words'" in note
    others = api.post("/plans", {**sent, "command": ["python", "train.py"]}).json()["notes"]
    assert others == plan["notes"][1:]
    job = api.post("/jobs", sent).json()
    assert job["command"] == words
    assert "split as a shell would" in api.get(f"/jobs/{job['id']}/events").json()["results"][0]["message"]


def test_a_plan_refuses_a_launcher_and_suggests_a_command(api, queue):
    answer = api.post("/plans", {**SENT, "command": ["accelerate", "launch", "--num_processes=4", "train.py"]})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "command" and "write torchrun train.py: " in error["message"]


def test_a_plan_gives_the_reason_it_would_wait(api, lab):
    lab.running()
    lab.submit(nodes=4)
    plan = api.post("/plans", SENT).json()
    assert plan["fits_now"] is False
    assert plan["wait_reason"]


def test_a_plan_refuses_what_a_submission_would_refuse(api, as_, queue):
    answer = api.post("/plans", {**SENT, "nodes": 0, "env": {"RANK": "1"}})
    assert answer.status_code == 422
    assert {one["field"] for one in answer.json()["errors"]} == {"nodes"}
    assert as_("viewer").post("/plans", SENT).status_code == 403


def test_a_bulk_action_reports_a_status_for_each_job(api, as_, lab):
    running, queued = lab.running(), lab.submit()
    over = lab.visit(lab.submit())
    api.post(f"/jobs/{over.pk}/cancel")
    lab.visit(over, times=2)
    answer = api.post("/jobs/bulk", {"act": "suspend", "ids": [running.pk, queued.pk, over.pk, 999_999]}).json()
    assert [(one["id"], one["status"]) for one in answer["results"]] == [
        (running.pk, 200),
        (queued.pk, 200),
        (over.pk, 409),
        (999_999, 404),
    ]
    assert "resubmit" in answer["results"][2]["problem"]
    assert [
        one["status"]
        for one in as_("viewer").post("/jobs/bulk", {"act": "cancel", "ids": [running.pk]}).json()["results"]
    ] == [403]
    assert [
        one["status"]
        for one in as_("stranger").post("/jobs/bulk", {"act": "cancel", "ids": [running.pk]}).json()["results"]
    ] == [404]
    assert Job.objects.filter(cancel_requested_at__isnull=False).count() == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"act": "explode", "ids": [1]},
        {"act": "cancel", "ids": []},
        {"act": "cancel", "ids": ["x"]},
        {"act": "cancel", "ids": [10**30]},
    ],
)
def test_an_invalid_bulk_action_is_refused(api, body):
    assert api.post("/jobs/bulk", body).status_code == 422


def test_resubmit_with_one_key_makes_one_job(api, lab):
    job = lab.submit()
    first = api.post(f"/jobs/{job.pk}/resubmit", Idempotency_Key="k")
    again = api.post(f"/jobs/{job.pk}/resubmit", Idempotency_Key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"] != job.pk


SECRET = "hf_very-secret-value"


def test_a_secret_reaches_the_ranks_but_no_answer_of_the_api(api, queue):
    answer = api.post("/jobs", {**SENT, "env": {"LR": "1"}, "secrets": {"HF_TOKEN": SECRET}})
    assert answer.status_code == 201, answer.json()
    job = Job.objects.get(pk=answer.json()["id"])
    assert (answer.json()["secrets"], answer.json()["env"]) == (["HF_TOKEN"], {"LR": "1"})
    assert plan_of(job, 1).env["HF_TOKEN"] == SECRET
    for path in ("", "/events", "/attempts", "/ranks", "/replicas"):
        assert SECRET not in json.dumps(api.get(f"/jobs/{job.pk}{path}").json())
    row = json.dumps(Job.objects.filter(pk=job.pk).values().get(), default=str)
    assert SECRET not in row


def test_the_pages_never_show_a_secret(client, people, api, queue):
    made = api.post("/jobs", {**SENT, "secrets": {"HF_TOKEN": SECRET}}).json()
    client.force_login(people.owner)
    for path in (f"/jobs/{made['id']}", f"/jobs/new?from={made['id']}"):
        page = client.get(path).content.decode()
        assert SECRET not in page
    assert "HF_TOKEN" in client.get(f"/jobs/{made['id']}").content.decode()


def test_a_resubmitted_job_keeps_its_secrets(api, queue):
    made = api.post("/jobs", {**SENT, "secrets": {"HF_TOKEN": SECRET}}).json()
    again = api.post(f"/jobs/{made['id']}/resubmit").json()
    assert plan_of(Job.objects.get(pk=again["id"]), 1).env["HF_TOKEN"] == SECRET


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"secrets": {"RANK": SECRET}}, "secrets.RANK"),
        ({"secrets": {"1bad": SECRET}}, "secrets.1bad"),
        ({"secrets": {"A": 3}}, "secrets.A"),
        ({"secrets": {"A": SECRET}, "env": {"A": "x"}}, "secrets.A"),
        ({"secrets": {"MUSTER_X": SECRET}}, "secrets.MUSTER_X"),
        ({"secrets": SECRET}, "secrets"),
        ({"env": {"A": "x" * 70_000}}, "env.A"),
        ({"env": {f"A{number}": "" for number in range(501)}}, "env"),
    ],
)
def test_a_refusal_does_not_repeat_the_secret(api, queue, change, field):
    answer = api.post("/jobs", {**SENT, **change})
    assert answer.status_code == 422
    assert field in {one["field"] for one in answer.json()["errors"]}
    assert SECRET not in answer.content.decode()


def test_secrets_survive_a_key_rotation_while_the_old_key_is_kept(settings):
    sealed = job_secrets.seal({"A": "b"})
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another key"
    assert job_secrets.unseal(sealed) == {"A": "b"}
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(Exception, match="MUSTER_SECRET_KEY was changed"):
        job_secrets.unseal(sealed)


def test_an_unchanged_resource_is_answered_with_304(api, lab):
    job = lab.submit()
    for path in (f"/jobs/{job.pk}", "/jobs", f"/jobs/{job.pk}/ranks", "/queues", "/me"):
        first = api.get(path)
        tag = first["ETag"]
        same = api.client.get(f"/api/v1{path}", headers={**api.headers, "If-None-Match": tag})
        assert (same.status_code, same.content) == (304, b""), path
        assert "private" in first["Cache-Control"]
    tag = api.get(f"/jobs/{job.pk}")["ETag"]
    api.post(f"/jobs/{job.pk}/cancel")
    changed = api.client.get(f"/api/v1/jobs/{job.pk}", headers={**api.headers, "If-None-Match": tag})
    assert changed.status_code == 200


def test_a_list_is_filtered_by_team_and_user(api, lab, people):
    lab.submit()
    assert len(api.get("/jobs", user="owner", team="nlp").json()["results"]) == 1
    assert api.get("/jobs", user="teammate").json()["results"] == []
    assert api.get("/jobs", user="a\0b").status_code == 400


def test_a_volume_belongs_to_the_team_of_the_job(api, queue):
    made = api.post("/jobs", {**SENT, "volumes": ["datasets"]})
    assert (made.status_code, made.json()["volumes"]) == (201, ["datasets"])
    plan = plan_of(Job.objects.get(pk=made.json()["id"]), 1)
    assert (plan.team, plan.volumes) == ("nlp", {"datasets": ""})


def test_the_plan_of_an_attempt_has_the_jobs_times(api, queue):
    made = api.post("/jobs", {**SENT, "grace_seconds": 7, "start_timeout_seconds": 90})
    plan = plan_of(Job.objects.get(pk=made.json()["id"]), 1)
    assert (plan.grace_seconds, plan.start_timeout_seconds) == (7, 90)


def test_a_mount_path_is_refused_on_a_cluster_without_mounts(api, queue, settings):
    settings.CLUSTERS = {queue.cluster: {"BACKEND": "jobs.clusters.local.LocalCluster"}}
    answer = api.post("/jobs", {**SENT, "volumes": ["data-sets:/data"]})
    assert answer.status_code == 422
    assert "$MUSTER_VOLUME_DATA_SETS" in answer.json()["errors"][0]["message"]
    assert Job.objects.count() == 0


def test_a_log_is_searched_and_downloaded_as_text(api, lab):
    job, now = lab.running(), time.time()
    texts = ["all is well", "Loss is NaN", "all is well"]
    apply.apply_batch(identity=identity(job), batch=batch(1, log_item(0, 0, [(now, text) for text in texts])))
    found = api.get(f"/jobs/{job.pk}/logs/search", text="nan").json()
    assert [(one["number"], one["rank"], one["text"]) for one in found["lines"]] == [(1, 0, "Loss is NaN")]
    assert found["next"] == ""
    first = api.get(f"/jobs/{job.pk}/logs/search", text="well", limit=1).json()
    rest = api.get(f"/jobs/{job.pk}/logs/search", text="well", start=first["next"]).json()
    assert [one["number"] for one in first["lines"] + rest["lines"]] == [0, 2]
    assert api.get(f"/jobs/{job.pk}/logs/search").status_code == 422
    assert api.get(f"/jobs/{job.pk}/logs/search", text="x", start="y").status_code == 422
    text = api.get(f"/jobs/{job.pk}/logs/text")
    assert text["Content-Type"].startswith("text/plain")
    assert [line.partition("rank 0  ")[2] for line in b"".join(text).decode().splitlines()] == texts


@pytest.mark.parametrize("value", ["x" * 40_000, "one two " * 5_000])
@pytest.mark.parametrize("field", ["nodes", "name", "framework", "env", "queue", "command", "volumes", "x"])
def test_a_refusal_truncates_a_long_value(api, queue, field, value):
    sent = {"queue": queue.name, "command": ["torchrun", "train.py"], field: value}
    if field == "command":
        sent[field] = ["accelerate", "launch", "train.py", *value.split()]
    answer = api.post("/jobs", sent)
    assert answer.status_code == 422, answer.content
    body = answer.json()
    assert value[:250] not in answer.text
    assert len(body["detail"]) < 2_000 and len(answer.content) < 5_000, answer.text
    if field in ("nodes", "name", "command"):  # the messages for other fields do not repeat the value
        assert body["errors"][0]["value"].endswith("…") and len(body["errors"][0]["value"]) == 200


def test_a_job_returns_the_fields_of_its_pods_and_a_plan_those_of_each_role(api, on_pods):
    pod = {
        "image": "registry.example/mine:2", "cpu": "4", "memory": "8Gi", "shm": "1Gi", "node_selector": {"pool": "a100"},
        "tolerations": ["spot"], "priority_class": "batch", "labels": {"cost-centre": "42"}, "annotations": {"note": "a b"},
        "working_dir": "examples", "roles": {"worker": {"memory": "16Gi"}},
    }  # fmt: skip
    (role,) = api.post("/plans", {**SENT, **pod}).json()["roles"]
    assert role["pod"]["limits"] == {"cpu": "4", "memory": "16Gi"} and role["pod"]["image"] == pod["image"]
    job = api.post("/jobs", {**SENT, **pod}).json()
    tolerated = [{"key": "spot", "operator": "Exists"}]
    assert {name: job[name] for name in pod} == {**pod, "tolerations": tolerated}
    plain = api.post("/jobs", SENT).json()
    assert (plain["image"], plain["node_selector"], plain["tolerations"], plain["roles"]) == ("", {}, [], {})


def test_jobs_are_filtered_by_a_part_of_their_image(api, client, people, on_pods):
    mine, other, none = (
        api.post("/jobs", {**SENT, **more}).json()["id"]
        for more in ({"image": "registry.example/nlp/train:2.9"}, {"image": "registry.example/vision:1"}, {})
    )
    assert [one["id"] for one in api.get("/jobs?image=NLP/train").json()["results"]] == [mine]
    assert [one["id"] for one in api.get("/jobs?image=registry.example").json()["results"]] == [other, mine]
    client.force_login(people.owner)
    page = client.get("/jobs?image=vision").text
    assert f"/jobs/{other}" in page and f"/jobs/{mine}" not in page and f"/jobs/{none}" not in page
    assert 'value="vision"' in page
