"""Teams, members and service accounts: no user exceeds their own role, and every team keeps an administrator."""

import threading

import pytest
from django.contrib.auth import authenticate
from django.db import IntegrityError, connection, transaction

from accounts import members, tokens
from accounts.models import AuditEntry, Membership, Role, Team, Token, User
from accounts.permissions import role_in
from common.errors import Conflict, InvalidInput, NotAllowed
from tests.conftest import make_user
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db


def roles(team: Team) -> dict[str, str]:
    return dict(team.memberships.values_list("user__username", "role"))


def test_users_see_only_the_teams_that_they_are_in(api, boss):
    assert api("owner").get("/teams").json()["results"][0]["name"] == "nlp"
    found = api("owner").get("/teams/nlp").json()
    assert (found["role"], found["members"]) == ("member", 4)
    assert api("stranger").get("/teams/nlp").status_code == 404
    assert len(api("admin").get("/teams").json()["results"]) == 2
    assert api("admin").get("/teams/nlp").json()["role"] is None


def test_only_platform_administrators_make_teams(api):
    assert api("boss").post("/teams", {"name": "speech"}).status_code == 403
    assert api("admin", scope="submit").post("/teams", {"name": "speech"}).status_code == 403
    assert api("admin").post("/teams", {"name": "speech"}).status_code == 201
    assert api("admin").post("/teams", {"name": "speech"}).status_code == 409
    for name in ("", "Speech", "a b", "-a", "a" * 41, "a\nb", "../x"):
        assert api("admin").post("/teams", {"name": name}).status_code == 422
    assert AuditEntry.objects.get().target_name == "speech"


def test_an_administrator_adds_changes_and_removes_members(api, team, people):
    using = api("boss")
    added = using.put("/teams/nlp/members/stranger", {"role": "viewer"})
    assert (added.status_code, added.json()["role"], added.json()["username"]) == (201, "viewer", "stranger")
    assert using.put("/teams/nlp/members/stranger", {"role": "member"}).status_code == 200
    assert using.put("/teams/nlp/members/stranger", {"role": "member"}).status_code == 200
    assert roles(team)["stranger"] == "member"
    listed = using.get("/teams/nlp/members").json()["results"]
    assert {one["username"] for one in listed} == {"boss", "owner", "teammate", "viewer", "stranger"}
    assert using.delete("/teams/nlp/members/stranger").status_code == 204
    assert using.delete("/teams/nlp/members/stranger").status_code == 404
    told = list(AuditEntry.objects.order_by("id").values_list("act", "target_name", "before", "after"))
    assert told == [
        ("member.add", "stranger", {}, {"role": "viewer"}),
        ("member.change", "stranger", {"role": "viewer"}, {"role": "member"}),
        ("member.remove", "stranger", {"role": "member"}, {}),
    ]


def test_nobody_makes_themselves_an_administrator(api, team):
    before = roles(team)
    for who, status in (("owner", 403), ("viewer", 403), ("stranger", 404)):
        assert api(who).put(f"/teams/nlp/members/{who}", {"role": "admin"}).status_code == status
    assert (roles(team), AuditEntry.objects.count()) == (before, 0)


@pytest.mark.parametrize(
    ("username", "body", "field"),
    [
        ("nobody", {"role": "viewer"}, "username"),
        ("owner", {"role": "owner"}, "role"),
        ("owner", {}, "role"),
        ("owner", {"role": "viewer", "team": "x"}, "team"),
    ],
)
def test_an_invalid_member_names_the_field(api, username, body, field):
    answer = api("boss").put(f"/teams/nlp/members/{username}", body)
    assert answer.status_code == 422
    assert f'"{field}"' in answer.text


def test_only_a_platform_administrator_may_demote_the_last_administrator(api, team, people, boss):
    for answer in (
        api("boss").delete("/teams/nlp/members/boss"),
        api("boss").put("/teams/nlp/members/boss", {"role": "viewer"}),
    ):
        assert answer.status_code == 409
        assert "appoint another administrator first" in answer.json()["detail"]
    assert roles(team)["boss"] == "admin"
    assert api("admin").put("/teams/nlp/members/boss", {"role": "viewer"}).status_code == 200


def test_an_administrator_may_leave_when_there_is_another(team, boss):
    members.set_role(team=team, username="owner", role="admin", by=boss)
    members.remove(team=team, username="boss", by=boss)
    assert role_in(boss, team) is None


@pytest.mark.parametrize("instead", ["inactive", "service account"])
def test_only_people_who_can_sign_in_count_as_administrators(team, boss, people, instead):
    if instead == "inactive":
        members.set_role(team=team, username="owner", role="admin", by=boss)
        User.objects.filter(username="owner").update(is_active=False)
    else:
        members.make_service_account(team=team, name="ci", role="admin", by=boss)
    with pytest.raises(Conflict, match="last administrator"):
        members.remove(team=team, username="boss", by=boss)


@pytest.mark.django_db(transaction=True)
def test_of_two_administrators_who_remove_each_other_concurrently_one_stays(team, boss, people):
    members.set_role(team=team, username="owner", role="admin", by=boss)
    start, outcomes = threading.Barrier(2), []

    def remove(who: User, other: str) -> None:
        start.wait(PATIENCE_SECONDS)
        try:
            members.remove(team=team, username=other, by=who)
            outcomes.append("removed")
        except (NotAllowed, Conflict):
            outcomes.append("refused")
        finally:
            connection.close()

    threads = [
        threading.Thread(target=remove, args=pair)
        for pair in ((boss, "owner"), (User.objects.get(username="owner"), "boss"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(outcomes) == ["refused", "removed"]
    assert list(roles(team).values()).count("admin") == 1


def test_access_ends_with_the_membership_but_the_token_stays_valid(api, lab, people, boss):
    job = lab.submit()
    using = api("teammate")
    assert using.get(f"/jobs/{job.pk}").status_code == 200
    members.remove(team=lab.queue.team, username="teammate", by=boss)
    assert using.get(f"/jobs/{job.pk}").status_code == 404
    assert using.get("/me").status_code == 200


def test_the_query_count_of_member_and_team_lists_is_constant(api, team, people, django_assert_max_num_queries):
    for number in range(20):
        Membership.objects.create(team=team, user=make_user(f"u{number}"), role=Role.VIEWER)
        Team.objects.create(name=f"team-{number}")
    using = api("admin")
    with django_assert_max_num_queries(5):
        assert len(using.get("/teams/nlp/members").json()["results"]) == 24
    with django_assert_max_num_queries(5):
        assert len(using.get("/teams").json()["results"]) == 22


# Service accounts.


def test_a_service_account_gets_a_token_and_submits_a_job(api, team, queue):
    using = api("boss")
    made = using.post("/teams/nlp/service-accounts", {"name": "ci", "role": "member"})
    assert (made.status_code, made.json()["username"], made.json()["is_service_account"]) == (201, "ci@nlp", True)
    token = using.post("/tokens", {"name": "ci", "service_account": "ci@nlp", "scope": "submit"}).json()
    program = type(using)(using.client, token["text"])
    assert (token["user"], program.get("/me").json()["is_service_account"]) == ("ci@nlp", True)
    assert program.post("/jobs", {"queue": "default", "command": ["true"]}).status_code == 201
    assert [one["username"] for one in using.get("/teams/nlp/service-accounts").json()["results"]] == ["ci@nlp"]
    assert token["id"] in [one["id"] for one in using.get("/tokens").json()["results"]]
    assert using.delete("/teams/nlp/service-accounts/ci@nlp").status_code == 204
    assert program.get("/me").status_code == 401
    assert Token.objects.get(pk=token["id"]).revoked_at is not None
    assert using.post("/teams/nlp/service-accounts", {"name": "ci", "role": "member"}).status_code == 409


def test_a_service_account_can_have_no_password(team, boss, client):
    user = members.make_service_account(team=team, name="ci", role="admin", by=boss).user
    assert not user.has_usable_password()
    assert authenticate(username="ci@nlp", password=user.password) is None
    user.set_password("a-real-password")
    with pytest.raises(IntegrityError, match="service_account_has_no_password"), transaction.atomic():
        user.save()


def test_a_service_account_with_a_password_still_cannot_sign_in(team, boss, client):
    user = members.make_service_account(team=team, name="ci", role="admin", by=boss).user
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE accounts_user DROP CONSTRAINT service_account_has_no_password")
    user.set_password("a-real-password")
    user.save()
    sent = {"username": "ci@nlp", "password": "a-real-password"}
    assert client.post("/api/v1/login", sent, content_type="application/json").status_code == 401
    assert client.post("/login", sent).status_code == 200
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize("power", ["is_superuser", "is_staff"])
def test_a_service_account_never_becomes_a_platform_administrator(team, boss, power):
    user = members.make_service_account(team=team, name="ci", role="admin", by=boss).user
    setattr(user, power, True)
    with pytest.raises(IntegrityError, match="service_account_is_no_platform_admin"), transaction.atomic():
        user.save()


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_a_service_account_cannot_raise_its_own_role_or_that_of_others(api, team, boss, role):
    row = members.make_service_account(team=team, name="ci", role=role, by=boss)
    text = tokens.issue(by=boss, name="ci", scope="manage", service_account="ci@nlp")[1]
    program = type(api())(api().client, text)
    for username in ("ci@nlp", "viewer"):
        assert program.put(f"/teams/nlp/members/{username}", {"role": "admin"}).status_code == 403
    assert program.post("/teams/nlp/service-accounts", {"name": "x", "role": "viewer"}).status_code == 403
    assert program.post("/tokens", {"name": "x"}).status_code == 403
    assert program.post("/tokens", {"name": "x", "service_account": "ci@nlp"}).status_code == 403
    row.refresh_from_db()
    assert row.role == role


def test_only_administrators_of_its_team_raise_the_role_of_a_service_account(team, boss, people):
    members.make_service_account(team=team, name="ci", role="member", by=boss)
    with pytest.raises(NotAllowed):
        members.set_role(team=team, username="ci@nlp", role="admin", by=people.owner)
    with pytest.raises(NotAllowed):
        members.set_role(team=team, username="ci@nlp", role="admin", by=people.stranger)
    members.set_role(team=team, username="ci@nlp", role="admin", by=boss)
    assert roles(team)["ci@nlp"] == "admin"


def test_a_service_account_stays_in_its_own_team(team, boss, people):
    members.make_service_account(team=team, name="ci", role="member", by=boss)
    with pytest.raises(InvalidInput, match="username"):
        members.set_role(team=Team.objects.get(name="vision"), username="ci@nlp", role="viewer", by=people.stranger)
    with pytest.raises(Conflict, match="service account"):
        members.remove(team=team, username="ci@nlp", by=boss)


def test_users_who_are_not_administrators_get_no_token_for_a_service_account(api, team, boss):
    members.make_service_account(team=team, name="ci", role="member", by=boss)
    for who, status in (("stranger", 422), ("owner", 403), ("viewer", 403)):
        assert api(who).post("/tokens", {"name": "x", "service_account": "ci@nlp"}).status_code == status
    assert not Token.objects.filter(user__username="ci@nlp").exists()


def test_two_teams_may_have_service_accounts_of_the_same_name(team, boss, people):
    members.make_service_account(team=team, name="ci", role="member", by=boss)
    other = members.make_service_account(
        team=Team.objects.get(name="vision"), name="ci", role="viewer", by=people.stranger
    )
    assert other.user.username == "ci@vision"
