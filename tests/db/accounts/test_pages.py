"""The pages of people, teams, tokens, audit and quota, as a browser without JavaScript sees them."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from accounts import audit, members
from accounts.audit import WORDS, AuditAction
from accounts.models import AuditEntry, Membership, Role, Team, Token, User
from queues import services
from queues.models import Queue

pytestmark = pytest.mark.django_db

ACTS_ON_TEAM = ["team-member-set", "team-member-remove", "team-service-make", "team-service-remove"]


@pytest.fixture
def as_(people, boss):
    def sign_in(name: str) -> Client:
        client = Client()
        client.force_login(User.objects.get(username=name))
        return client

    return sign_in


def test_a_team_change_without_a_csrf_token_is_refused(people, boss, team):
    before = set(team.memberships.values_list("user__username", "role"))
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="boss"))
    body = {"username": "viewer", "role": "admin", "name": "ci"}
    for act in ACTS_ON_TEAM:
        assert strict.post(reverse(act, args=["nlp"]), body).status_code == 403
    assert set(team.memberships.values_list("user__username", "role")) == before


def test_a_member_sees_roles_only_and_an_administrator_also_the_forms(as_):
    seen, managed = as_("viewer").get("/teams/nlp").text, as_("boss").get("/teams/nlp").text
    assert "teammate" in seen and "teammate" in managed
    assert "Remove" not in seen and "team-member" not in seen and "/teams/nlp/members" not in seen
    assert "/teams/nlp/members/remove" in managed
    assert "/teams/nlp/audit" in managed and "/teams/nlp/audit" not in seen


def test_an_administrator_adds_changes_and_removes_a_member(as_, team):
    boss = as_("boss")
    page = boss.post("/teams/nlp/members", {"username": "stranger", "role": "viewer"}, follow=True).text
    assert "stranger is now viewer of nlp." in page
    boss.post("/teams/nlp/members", {"username": "stranger", "role": "member"})
    assert team.memberships.get(user__username="stranger").role == "member"
    assert "no longer in nlp" in boss.post("/teams/nlp/members/remove", {"username": "stranger"}, follow=True).text
    assert not team.memberships.filter(user__username="stranger").exists()


@pytest.mark.parametrize(
    ("url", "body", "words"),
    [
        ("/teams/nlp/members", {"username": "nobody", "role": "viewer"}, "check the spelling"),
        ("/teams/nlp/members", {"username": "a\0b", "role": "viewer"}, "check the spelling"),
        ("/teams/nlp/members", {"username": "owner", "role": "emperor"}, "must be one of viewer, member, admin"),
        ("/teams/nlp/members", {"username": "boss", "role": "viewer"}, "appoint another administrator first"),
        ("/teams/nlp/members/remove", {"username": "boss"}, "appoint another administrator first"),
        ("/teams/nlp/service-accounts", {"name": "A B", "role": "viewer"}, "a-z, 0-9 and -"),
    ],
)
def test_the_page_shows_why_a_change_was_refused(as_, team, url, body, words):
    before = set(team.memberships.values_list("user__username", "role"))
    assert words in as_("boss").post(url, body, follow=True).text
    assert set(team.memberships.values_list("user__username", "role")) == before


def test_leaving_a_team_redirects_to_the_list_of_teams(as_, team, boss, people):
    members.set_role(team=team, username="owner", role="admin", by=boss)
    assert as_("boss").post("/teams/nlp/members/remove", {"username": "boss", "sure": "1"}).url == "/teams"


def test_a_platform_administrator_makes_a_team(as_):
    assert as_("root").post("/teams", {"name": "speech"}).url == "/teams/speech"
    assert "Create a team" not in as_("boss").get("/teams").text
    assert as_("boss").post("/teams", {"name": "sound"}).status_code == 403
    assert "already exists" in as_("root").post("/teams", {"name": "speech"}, follow=True).text
    assert not Team.objects.filter(name="sound").exists()


def test_a_token_is_shown_once_and_can_be_revoked(as_, api):
    owner = as_("owner")
    made = owner.post("/account/tokens", {"name": "laptop", "scope": "read", "expires_in_days": "30"})
    assert made.headers["Cache-Control"] == "private, no-store"
    text = re.search(r"mst_[\w-]{40,}", made.text)[0]
    row = Token.objects.get()
    assert (row.scope, row.digest) == ("read", Token.digest_of(text))
    later = owner.get("/account/tokens").text
    assert "laptop" in later and row.prefix in later and text not in later
    using = type(api())(Client(), text)
    assert using.get("/me").status_code == 200
    assert "was revoked" in owner.post(f"/account/tokens/{row.pk}/revoke", follow=True).text
    assert using.get("/me").status_code == 401


def test_an_administrator_makes_a_token_for_a_service_account(as_, team, boss):
    members.make_service_account(team=team, name="ci", role="member", by=boss)
    page = as_("boss").get("/account/tokens?for=ci@nlp").text
    assert '<option value="ci@nlp" selected>' in page
    assert "ci@nlp" not in as_("owner").get("/account/tokens?for=ci@nlp").text
    body = {"name": "x", "scope": "submit", "service_account": "ci@nlp", "expires_in_days": "7"}
    assert as_("owner").post("/account/tokens", body).status_code == 422
    assert as_("boss").post("/account/tokens", body).status_code == 200
    assert Token.objects.get().user.username == "ci@nlp"


@pytest.mark.parametrize(
    "change", [{"name": ""}, {"scope": "root"}, {"expires_in_days": "4000"}, {"team": "vision"}, {"name": "a\0"}]
)
def test_an_invalid_token_form_shows_an_error_and_makes_no_token(as_, change):
    body = {"name": "laptop", "scope": "read", "expires_in_days": "30", **change}
    answer = as_("owner").post("/account/tokens", body)
    assert answer.status_code == 422
    assert 'class="error"' in answer.text
    assert Token.objects.count() == 0


def test_a_password_is_changed_and_other_sessions_end(as_, people):
    here, elsewhere = as_("owner"), as_("owner")
    old, new = "owner-has-a-password", "an-entirely-new-one-9"
    wrong = here.post("/account/password", {"old_password": "x", "new_password1": new, "new_password2": new})
    assert (wrong.status_code, AuditEntry.objects.count()) == (200, 0)
    page = here.post(
        "/account/password", {"old_password": old, "new_password1": new, "new_password2": new}, follow=True
    )
    assert "signed out everywhere else" in page.text
    assert elsewhere.get("/account").status_code == 302
    entry = AuditEntry.objects.get()
    assert (entry.act, new in str(entry.__dict__)) == ("password.change", False)
    assert Client().login(username="owner", password=new)


@pytest.mark.parametrize(("said", "left"), [({}, 2), ({"end_tokens": "on"}, 0)])
def test_a_password_change_revokes_tokens_only_on_request(as_, people, said, left):
    mine = [Token.issue(people.owner, name)[0] for name in ("laptop", "ci")]
    theirs = Token.issue(people.viewer, "theirs")[0]
    here = as_("owner")
    assert "Revoke my API tokens too (2)" in here.get("/account/password").text
    sent = {
        "old_password": "owner-has-a-password",
        **dict.fromkeys(["new_password1", "new_password2"], "a-new-long-one-9"),
    }
    wrong = here.post("/account/password", {**sent, **said, "old_password": "x"})
    assert wrong.status_code == 200 and Token.objects.valid().count() == 3
    page = here.post("/account/password", {**sent, **said}, follow=True)
    assert ("2 tokens of yours are revoked" in page.text) is not bool(left)
    assert Token.objects.valid().filter(user=people.owner).count() == left
    assert Token.objects.valid().filter(pk=theirs.pk).exists()
    revoked = AuditEntry.objects.filter(act="token.revoke").values_list("target_id", flat=True)
    assert sorted(revoked) == ([] if left else sorted(str(one.pk) for one in mine))
    assert "Revoke my API tokens" not in as_("stranger").get("/account/password").text


def test_the_audit_page_shows_who_did_what_and_escapes_markup(as_, lab, boss, team):
    job = lab.submit(name="train")
    audit.record("odd.act", by=boss, on=boss, team=team, before={"a": 1}, after={"a": "<script>alert(1)</script>"})
    page = as_("boss").get("/teams/nlp/audit").text
    assert f'submitted job <a href="/jobs/{job.pk}">train</a>' in page
    assert "&lt;script&gt;" in page and "<script>alert" not in page
    assert "odd.act" in page
    assert "odd.act" not in as_("boss").get("/teams/nlp/audit?actor=owner").text.split("<section")[1]
    assert "No change matches" in as_("boss").get("/teams/nlp/audit?act=queue.make").text
    assert as_("boss").get("/teams/nlp/audit?actor=x&before=9999999999999999999999").status_code == 200
    assert as_("boss").get("/teams/nlp/audit?actor=%00").status_code == 400


def test_the_audit_page_is_paginated(as_, team, boss, django_assert_max_num_queries):
    for number in range(120):
        audit.record(f"act-{number}", by=boss, on=team, team=team)
    client, seen, url = as_("boss"), [], "/teams/nlp/audit"
    while url:
        with django_assert_max_num_queries(6):
            text = client.get(url).text
        seen += re.findall(r"act-(\d+)", text)
        older = re.search(r'href="(\?before=\d+)">Older', text)
        url = f"/teams/nlp/audit{older[1]}" if older else None
    assert seen == [str(number) for number in reversed(range(120))]


def test_a_platform_administrator_also_sees_entries_without_a_team(as_, people):
    Client().post("/login", {"username": "owner", "password": "wrong"})
    Client().post("/login", {"username": "hunter2", "password": "wrong"})
    page = as_("root").get("/audit").text
    assert "<b>somebody</b> failed to sign in as <b>owner</b>" in page
    assert "<b>somebody</b> failed to sign in as <b>an unknown user</b>" in page and "hunter2" not in page
    for name in ("boss", "owner"):
        assert as_(name).get("/audit").status_code == 403
        assert 'href="/audit"' not in as_(name).get("/account").text
    assert Client().get("/audit").url.startswith("/login?next=")


def test_every_audit_action_has_its_wording():
    assert set(WORDS) == set(AuditAction)


def test_the_query_count_of_a_team_page_is_constant(as_, team, django_assert_num_queries):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client = as_("boss")
    with CaptureQueriesContext(
        connection,
    ) as few:
        client.get("/teams/nlp")
    for number in range(20):
        user = User.objects.create(username=f"u{number}", password="!")
        Membership.objects.create(team=team, user=user, role=Role.VIEWER)
    with django_assert_num_queries(len(few)):
        client.get("/teams/nlp")


# The quota form.


def test_an_administrator_finds_the_form_and_changes_the_quota(as_, queue, team):
    services.set_ceiling(team=team, resource="cpu", slots=None, by=None)
    boss = as_("boss")
    assert 'href="/queues/default#change"' in boss.get("/queues").text
    assert 'href="/queues/default#change"' not in as_("owner").get("/queues").text
    assert 'name="slots"' not in as_("owner").get("/queues/default").text
    assert 'value="8"' in boss.get("/queues/default").text
    page = boss.post(
        "/queues/default", {"slots": "12", "gpus_per_node": "0", "description": "for all"}, follow=True
    ).text
    assert "Queue default was changed." in page and "for all" in page and "Closed" in page
    queue.refresh_from_db()
    assert (queue.nominal, queue.is_open, queue.description) == (12, False, "for all")


def test_the_page_warns_when_the_quota_is_lowered_below_use(as_, lab):
    lab.running(nodes=2, nproc_per_node=4)
    body = {"slots": "4", "gpus_per_node": "0", "is_open": "on", "seen": "4 True"}
    assert (
        "4 more than the quota; no job is stopped for that"
        in as_("boss").post("/queues/default", body, follow=True).text
    )


@pytest.mark.parametrize("change", [{"slots": "0"}, {"slots": "x"}, {"slots": "9" * 40}, {"gpus_per_node": "-1"}])
def test_an_invalid_quota_shows_an_error_and_changes_nothing(as_, queue, change):
    body = {"slots": "4", "gpus_per_node": "0", "is_open": "on", **change}
    answer = as_("boss").post("/queues/default", body)
    assert answer.status_code == 422
    assert 'class="error"' in answer.text
    assert Queue.objects.get().nominal == 8


NEW = {
    "name": "big",
    "team": "nlp",
    "cluster": "local",
    "resource": "gpu",
    "slots": "16",
    "gpus_per_node": "8",
    "is_open": "on",
}


def test_a_platform_administrator_makes_a_queue(as_):
    root = as_("root")
    assert "Create a queue" in root.get("/queues").text and "Create a queue" not in as_("boss").get("/queues").text
    assert '<option value="nlp" selected>' in root.get("/make-queue?team=nlp").text
    assert "Queue big was created." in root.post("/make-queue", NEW, follow=True).text
    assert (Queue.objects.get().nominal, Queue.objects.get().gpus_per_node) == (16, 8)
    assert "already exists" in root.post("/make-queue", NEW).text
    assert as_("boss").post("/make-queue", {**NEW, "name": "other"}).status_code == 403
    assert Client().post("/make-queue", NEW).url.startswith("/login?next=")
    assert Queue.objects.count() == 1


@pytest.mark.parametrize(
    "change", [{"name": "a b"}, {"team": "nowhere"}, {"cluster": "moon"}, {"slots": "0"}, {"name": "a\0"}]
)
def test_an_invalid_new_queue_shows_an_error_and_is_not_made(as_, change):
    answer = as_("root").post("/make-queue", {**NEW, **change})
    assert answer.status_code == 422
    assert 'class="error"' in answer.text
    assert Queue.objects.count() == 0


def test_ones_own_demotion_asks_first(as_, team, people):
    Membership.objects.filter(team=team, user=people.owner).update(role=Role.ADMIN)
    boss, body = as_("boss"), {"username": "boss", "role": "member"}
    asked = boss.post("/teams/nlp/members", body)
    assert asked.status_code == 200 and "You will no longer be an administrator of nlp" in asked.text
    assert team.memberships.get(user__username="boss").role == "admin"
    assert "You will no longer" in boss.post("/teams/nlp/members/remove", {"username": "boss"}).text
    assert boss.post("/teams/nlp/members", {**body, "sure": "1"}).status_code == 302
    assert team.memberships.get(user__username="boss").role == "member"


def test_taking_the_last_administrators_role_asks_first(as_, team):
    root = as_("root")
    asked = root.post("/teams/nlp/members", {"username": "boss", "role": "viewer"})
    assert "nlp will have no administrator" in asked.text
    assert (
        root.post("/teams/nlp/members", {"username": "viewer", "role": "member"}).status_code == 302
    )  # nothing is lost
    assert (
        "is now viewer"
        in root.post("/teams/nlp/members", {"username": "boss", "role": "viewer", "sure": "1"}, follow=True).text
    )


# -- people


def invite(root, **sent):
    return root.post(
        "/people", {"act": "invite", "username": "ada", "team": "nlp", "role": "viewer", "password": ROOT, **sent}
    )


ROOT = "root-has-a-password"


@pytest.fixture
def root(as_, people):
    user = User.objects.get(username="root")
    user.set_password(ROOT)
    user.save()
    return as_("root")


def test_a_person_is_invited_and_chooses_a_password(root, team):
    page = invite(root)
    password = re.search(r'id="first-password"[^>]*>([^<]+)<', page.text)[1]
    assert page.headers["Cache-Control"] == "private, no-store" and "Content-Encoding" not in page.headers
    assert Client().login(username="ada", password=password)
    assert Membership.objects.get(user__username="ada").role == "viewer"
    assert [(one.act, one.actor_name) for one in AuditEntry.objects.order_by("id")] == [
        ("person.make", "root"),
        ("member.add", "root"),
    ]
    assert password not in root.get("/people").text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"username": "owner"}, "already exists"), ({"username": "a b"}, "letters, digits"), ({"role": "emperor"}, "must be one of"),
        ({"password": "wrong"}, "not your current password"), ({"username": "ci@nlp"}, "service accounts"),
    ],
)  # fmt: skip
def test_an_invalid_invitation_is_refused_with_its_reason(root, body, words):
    before = User.objects.count()
    assert (
        words
        in root.post(
            "/people",
            {"act": "invite", "username": "ada", "team": "", "role": "member", "password": ROOT, **body},
            follow=True,
        ).text
    )
    assert User.objects.count() == before


def test_people_are_helped_and_deactivated(root, people):
    def act(act, username="owner"):
        return root.post("/people", {"act": act, "username": username, "password": ROOT}, follow=True).text

    password = re.search(r'id="first-password"[^>]*>([^<]+)<', act("password"))[1]
    assert Client().login(username="owner", password=password)
    assert "can no longer sign in" in act("deactivate") and not User.objects.get(username="owner").is_active
    assert "can sign in again" in act("activate") and User.objects.get(username="owner").is_active
    assert "signs in without a second factor" in act("factor")
    for own in ("deactivate", "password", "factor"):
        assert "your" in act(own, "root") or "yourself" in act(own, "root")
    assert User.objects.get(username="root").is_active
    assert "not a known user" in act("deactivate", "nobody")
    told = AuditEntry.objects.values_list("act", "actor_name").order_by("id")
    assert [pair for pair in told if pair[0] != "login.failed"] == [
        ("password.give", "root"),
        ("person.change", "root"),
        ("person.change", "root"),
    ]


@pytest.mark.parametrize("name", ["boss", "viewer", "stranger"])
def test_only_platform_administrators_manage_people(as_, name):
    assert as_(name).get("/people").status_code == 403
    assert as_(name).post("/people", {"act": "deactivate", "username": "owner"}).status_code == 403
    assert User.objects.get(username="owner").is_active
    assert 'href="/people"' not in as_(name).get("/jobs").text


def test_people_are_found_by_name(root):
    assert "teammate" not in root.get("/people?q=own").text
    assert "No matching people" in root.get("/people?q=zzz").text
