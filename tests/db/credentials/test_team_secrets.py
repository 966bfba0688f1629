"""Secrets of a team: who may write them, what nobody can read, which version an attempt has, and what keeps one in use."""

import json

import pytest
from django.db import connection

from accounts.models import AuditEntry, Membership, Role, Token
from common.errors import Conflict, InvalidInput, InvalidSpec, Refused
from credentials import services
from credentials.models import SecretVersion, TeamSecret
from jobs import services as jobs
from jobs.control import job_secrets
from jobs.control.store import plan_of
from jobs.models import Attempt, Job
from jobs.submission.resolving import queue_defaults
from queues import services as queues
from tests.conftest import make_user
from tests.db.accounts.conftest import Api

pytestmark = pytest.mark.django_db
PATH = "/teams/nlp/secrets"
VALUE = "hf_zebra7731"
SENT = {"name": "hub", "values": {"HF_TOKEN": VALUE}}
ROLES = ("boss", "owner", "viewer", "stranger", "root")


@pytest.fixture
def boss(team, people):
    user = make_user("boss")
    Membership.objects.create(user=user, team=team, role=Role.ADMIN)
    return user


@pytest.fixture
def api(client, people, boss):
    """`api("viewer")` sends a token of that user."""

    def of(name: str, *, scope: str = "manage") -> Api:
        user = boss if name == "boss" else {one.username: one for one in vars(people).values()}[name]
        return Api(client, Token.issue(user, "test", scope=scope)[1])

    return of


@pytest.fixture
def secret(team, boss):
    """`secret("hub", HF_TOKEN="...")` makes one."""

    def make(name: str = "hub", kind: str = "env", **values: str) -> TeamSecret:
        return services.create(team=team, by=boss, name=name, kind=kind, values=values or {"HF_TOKEN": VALUE})

    return make


def env_of(job: Job) -> dict[str, str]:
    return dict(plan_of(job, job.attempt).env)


def statuses(api, act) -> list[int]:
    return [act(api(name)).status_code for name in ROLES]


def test_what_each_role_may_do(api, secret):
    secret()
    manage = [200, 403, 403, 404, 200]
    assert statuses(api, lambda one: one.get(PATH)) == [200, 200, 200, 404, 200]
    assert statuses(api, lambda one: one.get(f"{PATH}/hub")) == [200, 200, 200, 404, 200]
    assert statuses(api, lambda one: one.patch(f"{PATH}/hub", {"values": {"A": "b"}})) == manage
    count = iter("abcdefgh")
    made = statuses(api, lambda one: one.post(PATH, {**SENT, "name": next(count)}))
    assert made == [201, 403, 403, 404, 201]
    assert [api(name).delete(f"{PATH}/hub").status_code for name in ROLES[1:]] == [403, 403, 404, 204]
    assert api("boss", scope="submit").patch(f"{PATH}/hub", {"values": {"A": "b"}}).status_code in (403, 404)


def test_values_are_in_no_answer_no_page_no_audit_and_no_column(api, lab, client, boss):
    assert VALUE not in api("boss").post(PATH, SENT).content.decode()
    changed = api("boss").patch(f"{PATH}/hub", {"values": {"OTHER": VALUE}})
    assert (changed.json()["keys"], changed.json()["version"]) == (["HF_TOKEN", "OTHER"], 2)
    job = lab.running(team_secrets=["hub"])
    assert env_of(job)["HF_TOKEN"] == VALUE
    client.force_login(boss)
    pages = [f"/teams/nlp/secrets{rest}" for rest in ("", "/hub")] + [f"/jobs/{job.pk}", "/teams/nlp"]
    for path in pages:
        assert VALUE not in client.get(path).content.decode()
    assert VALUE not in json.dumps([api("boss").get(f"/jobs/{job.pk}").json(), api("boss").get(PATH).json()])
    assert VALUE not in json.dumps([[one.before, one.after] for one in AuditEntry.objects.all()])
    with connection.cursor() as cursor:
        for table in ("credentials_teamsecret", "credentials_secretversion", "jobs_job", "jobs_attempt"):
            cursor.execute(f"SELECT coalesce(string_agg(t::text, ''), '') FROM {table} t")
            assert VALUE not in cursor.fetchone()[0]


def test_a_new_version_takes_effect_with_the_next_attempt(lab, secret, boss):
    hub = secret(HF_TOKEN="old", KEPT="kept")
    job = lab.running(team_secrets=["hub"], max_retries=1)
    services.change(secret=hub, by=boss, values={"HF_TOKEN": "new"})
    # A replica that is replaced within the attempt gets what the others have.
    assert env_of(job)["HF_TOKEN"] == "old"
    lab.finish(job, 3, 3)
    lab.visit(job, times=3)
    assert job.attempt == 2
    assert {name: env_of(job)[name] for name in ("HF_TOKEN", "KEPT")} == {"HF_TOKEN": "new", "KEPT": "kept"}
    assert [one.secrets for one in job.attempts.all()] == [{"hub": 1}, {"hub": 2}]


def test_values_of_old_versions_are_forgotten_once_no_attempt_has_them(lab, secret, boss):
    hub = secret()
    job = lab.running(team_secrets=["hub"])
    services.change(secret=hub, by=boss, values={"HF_TOKEN": "new"})
    assert services.forget_old(used=job_secrets.in_use()) == 0
    lab.finish(job, 0, 0)
    assert services.forget_old(used=job_secrets.in_use()) == 1
    assert [bool(one.sealed) for one in SecretVersion.objects.order_by("number")] == [False, True]
    assert services.read({"hub": 2}, team=hub.team).env == {"HF_TOKEN": "new"}
    with pytest.raises(Refused, match="no longer exists in version 1"):
        services.read({"hub": 1}, team=hub.team)


def test_the_jobs_own_variables_come_before_the_teams(lab, secret):
    secret(A="team", B="team", C="team")
    job = lab.submit(team_secrets=["hub"], env={"A": "job"}, secrets={"B": "job"})
    assert {name: env_of(job)[name] for name in "ABC"} == {"A": "job", "B": "job", "C": "team"}


def test_a_queue_names_secrets_for_its_jobs_and_a_job_adds_its_own(lab, secret, queue, boss):
    secret("hub")
    secret("wandb", WANDB_API_KEY="w")
    queues.change(queue=queue, by=boss, defaults=queue_defaults(queue, {"team_secrets": ["wandb"]}))
    queue.refresh_from_db()
    job = lab.submit(team_secrets=["hub"])
    assert job.job_spec.team_secrets == ("wandb", "hub")
    assert {"HF_TOKEN", "WANDB_API_KEY"} <= set(env_of(job))
    assert services.used_by(TeamSecret.objects.get(name="wandb")) == [f"job {job.name}", "queue default"]


def test_a_secret_in_use_is_not_removed(lab, secret, boss):
    hub = secret()
    job = lab.submit(team_secrets=["hub"], name="train")
    with pytest.raises(Conflict, match="secret hub is used by job train; end or change these first"):
        services.remove(secret=hub, by=boss)
    jobs.cancel(job=job, by=lab.user)
    lab.visit(job, times=2)
    services.remove(secret=hub, by=boss)
    assert not SecretVersion.objects.exists()


def test_files_and_registry_logins_reach_the_plan(lab, secret):
    secret("gcp", "file", **{"key.json": "{}"})
    secret("registry", "registry", server="registry.example.com", username="robot", password="p")
    plan = plan_of(lab.submit(team_secrets=["gcp", "registry"]), 1)
    assert {name: (one.files, one.path) for name, one in plan.secret_files.items()} == {"gcp": ({"key.json": "{}"}, "")}
    assert json.loads(plan.docker_config) == {
        "auths": {"registry.example.com": {"username": "robot", "password": "p", "auth": "cm9ib3Q6cA=="}}
    }
    assert "p" not in plan.env.values()


@pytest.mark.parametrize(
    "named, words",
    [
        ("nope", "nope is not a secret of team nlp; its administrators make one at /teams/nlp/secrets"),
        ("theirs", "theirs is not a secret of team nlp; its administrators make one at /teams/nlp/secrets"),
        ("hub:/data", "hub has no files to mount; write hub alone"),
        ("gcp:/data", "cluster local runs plain processes and mounts nothing; write gcp alone and read $MUSTER_SECRET_GCP"),
    ],
)  # fmt: skip
def test_names_that_a_job_cannot_use(queue, secret, people, named, words):
    secret()
    secret("gcp", "file", **{"key.json": "{}"})
    other = people.stranger.memberships.get().team
    services.create(team=other, by=people.stranger, name="theirs", kind="env", values={"A": "b"})
    with pytest.raises(InvalidSpec) as caught:
        jobs.resolve(queue=queue, sent={"command": "torchrun train.py", "team_secrets": [named]})
    assert [(one.field, one.message) for one in caught.value.problems] == [("team_secrets", words)]


@pytest.mark.parametrize(
    "kind, values, field",
    [
        ("env", {}, "values"),
        ("env", {"NOT-A-NAME": "x"}, "values.NOT-A-NAME"),
        ("env", {"MUSTER_TOKEN": "x"}, "values.MUSTER_TOKEN"),
        ("env", {"A": ""}, "values.A"),
        ("env", {"A": "a\0b"}, "values.A"),
        ("env", {"A": "\ud800"}, "values.A"),
        ("env", {"A": "x" * 40_000}, "values"),
        ("file", {"..": "x"}, "values..."),
        ("file", {"a/b": "x"}, "values.a/b"),
        ("registry", {"server": "s", "username": "u"}, "values.password"),
        ("registry", {"server": "s", "username": "u", "password": "p", "more": "m"}, "values.more"),
        ("odd", {"A": "b"}, "kind"),
    ],
)
def test_what_no_secret_can_hold(team, boss, kind, values, field):
    with pytest.raises(InvalidInput) as caught:
        services.create(team=team, by=boss, name="hub", kind=kind, values=values)
    assert field in [one.field for one in caught.value.problems]
    assert not any(value and value in str(one.value) for one in caught.value.problems for value in values.values())
    assert not TeamSecret.objects.exists()


def test_removing_a_key_and_naming_one_that_is_not_there(secret, boss):
    hub = secret(A="a", B="b")
    services.change(secret=hub, by=boss, values={"A": None, "C": "c"})
    assert services.read({"hub": 2}, team=hub.team).env == {"B": "b", "C": "c"}
    with pytest.raises(InvalidInput, match="is not in secret hub; it has B, C"):
        services.change(secret=hub, by=boss, values={"A": None})
    hub.refresh_from_db()
    assert hub.version == 2


def test_after_a_new_key_of_the_server_values_are_entered_again(lab, secret, boss, settings):
    hub = secret(A="a", B="b")
    job = lab.submit(team_secrets=["hub"])
    settings.SECRET_KEY = "another key of the server, long enough"
    with pytest.raises(Refused, match="enter its values again"):
        plan_of(job, 1)
    with pytest.raises(Refused, match="enter its values again"):
        services.change(secret=hub, by=boss, values={"A": "new"})
    services.change(secret=hub, by=boss, values={"A": "new", "B": "new"})
    assert env_of(job)["B"] == "new"


def test_an_attempt_of_the_release_before_gets_the_newest_version(lab, secret):
    secret()
    job = lab.running(team_secrets=["hub"])
    Attempt.objects.update(secrets=None)
    assert env_of(job)["HF_TOKEN"] == VALUE


def test_the_pages_make_change_and_remove_a_secret(client, boss, lab):
    client.force_login(boss)
    form = {"name": "hub", "kind": "env", "values": "HF_TOKEN=a=b\r\nB=c\r\n"}
    assert client.post("/teams/nlp/secrets", form).status_code == 302
    assert services.read({"hub": 1}, team=lab.queue.team).env == {"HF_TOKEN": "a=b", "B": "c"}
    again = client.post("/teams/nlp/secrets", form)
    assert again.status_code == 422 and "choose another name" in again.content.decode()
    assert "a=b" not in again.content.decode()
    wrong = client.post("/teams/nlp/secrets", {**form, "name": "other", "values": "no sign"})
    assert wrong.status_code == 422 and "Line 1 is not of the form NAME=value" in wrong.content.decode()
    assert (
        client.post("/teams/nlp/secrets/hub", {"act": "change", "values": "B=d", "without": ["HF_TOKEN"]}).status_code
        == 302
    )
    assert services.read({"hub": 2}, team=lab.queue.team).env == {"B": "d"}
    assert "2 <span" in client.get("/teams/nlp/secrets/hub").content.decode()
    assert client.post("/teams/nlp/secrets/hub", {"act": "remove"}).status_code == 302
    assert not TeamSecret.objects.exists()
    client.force_login(lab.user)
    assert client.post("/teams/nlp/secrets", form).status_code == 403


def test_the_form_of_jobs_takes_and_repeats_names(client, lab, secret, queue):
    secret()
    client.force_login(lab.user)
    form = {"queue": queue.pk, "code": "none", "command": "torchrun train.py", "framework": "torchrun", "nodes": "1",
            "nproc_per_node": "1", "team_secrets": "hub", "idempotency_key": "k" * 20}  # fmt: skip
    made = client.post("/jobs/new", form)
    assert made.status_code == 302
    job = Job.objects.latest("pk")
    assert job.job_spec.team_secrets == ("hub",)
    page = client.get(f"/jobs/{job.pk}").content.decode()
    assert 'href="/teams/nlp/secrets/hub"' in page
