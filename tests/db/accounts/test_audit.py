"""The audit log: what is recorded, which secrets are left out, who may read it, and that entries cannot be changed."""

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from accounts import audit
from accounts.audit import HIDDEN, AuditAction
from accounts.models import AuditEntry, Role, Team
from accounts.models import Membership as Member
from jobs import services
from jobs.models import Job

pytestmark = pytest.mark.django_db


def deeds() -> list[str]:
    return list(AuditEntry.objects.order_by("id").values_list("act", flat=True))


def last() -> AuditEntry:
    return AuditEntry.objects.latest("id")


@pytest.fixture
def entry(people, team) -> AuditEntry:
    return audit.record(AuditAction.TEAM_MADE, by=people.owner, on=team, team=team, after={"name": "nlp"})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE accounts_auditentry SET act = 'nothing'",
        "UPDATE accounts_auditentry SET actor_name = 'somebody else'",
        "UPDATE accounts_auditentry SET after = '{}'",
        "UPDATE accounts_auditentry SET ip = '127.0.0.1', team_id = NULL",
        "UPDATE accounts_auditentry SET actor_id = (SELECT max(id) FROM accounts_user)",
        "DELETE FROM accounts_auditentry",
    ],
)
def test_the_database_refuses_to_change_or_delete_an_entry(entry, change):
    with pytest.raises(DatabaseError, match="never changed or deleted"), transaction.atomic():
        connection.cursor().execute(change)
    unchanged = AuditEntry.objects.get(pk=entry.pk)
    assert (unchanged.act, unchanged.actor_name, unchanged.after) == ("team.make", "owner", {"name": "nlp"})


def test_the_names_stay_when_the_user_and_the_team_are_deleted(entry, people, team):
    people.owner.delete()
    team.delete()
    entry.refresh_from_db()
    assert (entry.actor, entry.team) == (None, None)
    assert (entry.actor_name, entry.team_name, entry.target_name) == ("owner", "nlp", "nlp")


def test_a_change_that_is_rolled_back_leaves_no_entry(team, people):
    def change():
        with transaction.atomic():
            audit.record(AuditAction.TEAM_MADE, by=people.owner, on=team, team=team)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    assert deeds() == []


def test_each_job_action_is_recorded_once(lab, people):
    job = lab.submit(name="train", env={"WANDB_API_KEY": "hunter2"})
    services.suspend(job=job, by=people.teammate)
    services.suspend(job=job, by=people.teammate)
    services.resume(job=job, by=people.owner)
    services.cancel(job=job, by=people.owner)
    assert deeds() == ["job.submit", "job.suspend", "job.resume", "job.cancel"]
    submitted, suspended = AuditEntry.objects.order_by("id")[:2]
    assert (submitted.target_kind, submitted.target_id, submitted.target_name) == ("job", str(job.pk), "train")
    assert submitted.after == {"queue": "default", "nodes": 2, "nproc_per_node": 2}
    assert (suspended.actor, suspended.team_name) == (people.teammate, "nlp")
    assert (suspended.before, suspended.after) == ({"suspended": False}, {"suspended": True})
    assert "hunter2" not in "".join(str(one.__dict__) for one in AuditEntry.objects.all())


def test_a_refused_submission_is_not_recorded(lab):
    lab.submit(name="train")
    with pytest.raises(Exception, match="is that of an open job"):
        lab.submit(name="train")
    assert deeds() == ["job.submit"]
    assert Job.objects.count() == 1


def test_an_entry_records_the_token_and_the_client_address(api, queue):
    sent = {"queue": "default", "command": ["true"]}
    using = api("owner", scope="submit")
    assert using.post("/jobs", sent, **{"User-Agent": "muster/1.0", "X-Forwarded-For": "8.8.8.8"}).status_code == 201
    entry = last()
    assert (entry.actor_name, entry.ip, entry.user_agent) == ("owner", "127.0.0.1", "muster/1.0")
    assert using.headers["Authorization"].startswith(f"Bearer {entry.token_prefix}")
    assert len(entry.token_prefix) == 10


def test_behind_a_trusted_proxy_the_address_of_the_client_is_recorded(api, queue, settings):
    from ipaddress import ip_network

    settings.TRUSTED_PROXIES = [ip_network("127.0.0.1")]
    api("owner").post("/jobs", {"queue": "default", "command": ["true"]}, **{"X-Forwarded-For": "198.51.100.9"})
    assert last().ip == "198.51.100.9"


def test_login_logout_and_failed_login_are_recorded(people):
    client = Client()
    client.post("/login", {"username": "owner", "password": "wrong"})
    client.post("/login", {"username": "owner", "password": "owner-has-a-password"})
    client.post("/logout")
    assert deeds() == ["login.failed", "login", "logout"]
    failed, done, _ = AuditEntry.objects.order_by("id")
    assert (failed.actor, failed.target_name, failed.after) == (None, "owner", {"way": "page", "is_known": True})
    assert (done.actor_name, done.token_prefix) == ("owner", "")


def test_the_api_records_a_login_its_token_and_a_failed_login(api, people):
    body = {"username": "owner", "password": "owner-has-a-password"}
    assert api().post("/login", body).status_code == 201
    assert api().post("/login", {**body, "password": "x"}).status_code == 401
    assert deeds() == ["login", "token.make", "login.failed"]


def test_a_password_typed_into_the_username_field_is_not_recorded(people):
    Client().post("/login", {"username": "correct horse battery", "password": "x"})
    assert last().act == "login.failed"
    assert "horse" not in str(last().__dict__)
    assert last().after == {"way": "page", "is_known": False}


SECRETS = st.sampled_from(["password", "new_password", "SECRET", "api_key", "env", "digest", "Authorization"])


@given(st.dictionaries(SECRETS, st.text(min_size=9, max_size=20).map(lambda text: f"hush-{text}"), min_size=1))
def test_values_under_secret_names_are_redacted_at_any_depth(secret):
    for values in (secret, {"outer": secret}, {"list": [secret]}):
        assert "hush-" not in str(audit.clean(values))
        assert HIDDEN in str(audit.clean(values))


@given(st.recursive(st.none() | st.text() | st.floats() | st.integers(), lambda one: st.lists(one, max_size=3)))
def test_any_value_becomes_json_that_postgres_accepts(value):
    import json

    text = json.dumps(audit.clean({"value": value}), allow_nan=False)
    assert "\\u0000" not in text


def test_hostile_names_are_stored_as_text(people, team):
    entry = audit.record("x", by=people.owner, after={"a\0b": "c\0d", "e": "x" * 9999})
    entry.refresh_from_db()
    assert entry.after == {"ab": "cd", "e": "x" * 300}


def test_administrators_read_only_entries_of_their_own_team(api, people, team, boss):
    other = Team.objects.get(name="vision")
    audit.record(AuditAction.TEAM_MADE, by=people.admin, on=team, team=team)
    audit.record(AuditAction.TEAM_MADE, by=people.admin, on=other, team=other)
    audit.record(AuditAction.LOGIN, by=boss, on=boss)

    def seen(who):
        return [one["team"] for one in api(who).get("/audit").json()["results"]]

    assert (seen("boss"), seen("stranger"), seen("admin")) == (["nlp"], ["vision"], ["", "vision", "nlp"])
    assert api("boss").get("/audit", team="vision").json()["results"] == []


def test_a_token_for_one_team_reads_only_the_audit_of_that_team(api, people, team, boss):
    other = Team.objects.get(name="vision")
    Member.objects.create(user=boss, team=other, role=Role.ADMIN)
    for one in (team, other):
        audit.record(AuditAction.TEAM_MADE, by=people.admin, on=one, team=one)
    for who in ("boss", "admin"):
        assert {one["team"] for one in api(who, team=team).get("/audit").json()["results"]} == {"nlp"}


def test_the_audit_is_filtered_and_paged_without_gaps(api, people, team):
    made = [audit.record(f"act-{number % 2}", by=people.owner, on=team, team=team).pk for number in range(7)]
    using, seen, url = api("boss"), [], "/audit?limit=3"
    while url:
        page = using.client.get(url if url.startswith("http") else f"/api/v1{url}", headers=using.headers).json()
        seen += [one["id"] for one in page["results"]]
        url = page["next"]
    assert seen == made[::-1]
    assert len(using.get("/audit", act="act-1").json()["results"]) == 3
    assert len(using.get("/audit", actor="owner", team="nlp").json()["results"]) == 7
    assert using.get("/audit", actor="nobody").json()["results"] == []
    assert using.get("/audit", actor="a\0b").status_code == 400
    too_long = using.get("/audit", act="a" * 41)
    assert too_long.status_code == 422 and too_long.json()["errors"][0]["field"] == "act"


def test_the_query_count_of_an_audit_page_is_constant(api, people, team, django_assert_max_num_queries):
    for number in range(40):
        audit.record(f"act-{number}", by=people.owner, on=team, team=team)
    using = api("boss")
    with django_assert_max_num_queries(4):
        assert len(using.get("/audit", limit=40).json()["results"]) == 40
