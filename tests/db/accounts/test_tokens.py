"""Tokens: their rights are bounded by the user and by the issuing token; they are shown once, and they expire."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from accounts import tokens
from accounts.models import AuditEntry, Membership, Role, Scope, Team, Token, User
from accounts.permissions import Act, is_platform_admin, may, readable_teams, teams_where
from accounts.roles import ALLOWED, SCOPES, SESSION
from accounts.session_store import SessionStore
from common.errors import InvalidInput, NotAllowed

pytestmark = pytest.mark.django_db

ROLES = [*Role.values, "owner", "ADMIN", ""]
SCOPE_NAMES = [*Scope.values, "root", "MANAGE", ""]


@pytest.fixture
def unchecked(db):
    """A database without the constraints on roles and scopes, so that tests can store unknown values."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_membership DROP CONSTRAINT membership_role_is_known")
        cursor.execute("ALTER TABLE accounts_token DROP CONSTRAINT token_scope_is_known")


@pytest.mark.parametrize("role", ROLES)
def test_a_token_may_do_only_what_both_its_scope_and_the_role_allow(unchecked, people, team, role):
    user = people.owner
    Membership.objects.filter(user=user, team=team).update(role=role)
    other = Team.objects.get(name="vision")
    for scope in SCOPE_NAMES:
        for only in (None, team, other):
            token = Token.issue(user, "x", scope=scope, team=only)[0]
            user.grant = Token.objects.get(pk=token.pk).grant
            for act in Act:
                known = act in ALLOWED.get(role, ()) and act in SCOPES.get(scope, ())
                expected = known and only in (None, team)
                assert may(user, act, team) == expected, (role, scope, only, act)
                assert teams_where(user, act) == ([team.pk] if expected else []), (role, scope, only, act)
                assert not may(user, act, other)


@pytest.mark.parametrize("scope", SCOPE_NAMES)
def test_a_token_of_a_platform_administrator_is_bound_by_its_scope_and_team(unchecked, people, team, scope):
    user, other = people.admin, Team.objects.get(name="vision")
    for only in (None, team):
        user.grant = Token.issue(user, "x", scope=scope, team=only)[0].grant
        for act in Act:
            covered = act in SCOPES.get(scope, ())
            assert may(user, act, team) == covered
            assert may(user, act, other) == (covered and only is None)
            everywhere = None if only is None else [team.pk]
            assert teams_where(user, act) == (everywhere if covered else [])
        assert is_platform_admin(user) == (scope == "manage" and only is None)
    user.grant = SESSION
    assert is_platform_admin(user)
    assert readable_teams(user) is None


def test_an_unknown_role_in_the_database_grants_nothing_over_http(unchecked, api, people, lab):
    job = lab.submit()
    Membership.objects.filter(user=people.viewer).update(role="superadmin")
    using = api("viewer")
    assert using.get(f"/jobs/{job.pk}").status_code == 404
    assert using.get("/teams").json()["results"] == []
    assert using.get("/me").json()["teams"] == []


def test_an_inactive_user_may_do_nothing(people, team):
    for user in (people.owner, people.admin):
        user.is_active = False
        assert not any(may(user, act, team) for act in Act)
        assert readable_teams(user) == []


def test_a_refusal_names_the_scope_that_is_too_narrow(api, lab):
    job = lab.submit()
    for scope, method, path in (("read", "post", f"/jobs/{job.pk}/cancel"), ("submit", "patch", "/queues/default")):
        answer = api("boss", scope=scope).send(method, path)
        assert (answer.status_code, scope in answer.json()["detail"]) == (403, True), answer.text


def test_a_token_for_one_team_does_not_reach_another(api, people, lab, queue):
    other = Team.objects.get(name="vision")
    Membership.objects.create(user=people.owner, team=other, role=Role.ADMIN)
    job = lab.submit()
    using = api("owner", team=other)
    assert using.get(f"/jobs/{job.pk}").status_code == 404
    assert using.get("/queues").json()["results"] == []
    assert [one["name"] for one in using.get("/teams").json()["results"]] == ["vision"]
    assert [one["name"] for one in using.get("/me").json()["teams"]] == ["vision"]
    assert using.post("/jobs", {"queue": "default", "command": ["true"]}).status_code == 422


def test_a_token_is_created_shown_once_used_and_revoked(api):
    using = api("owner")
    made = using.post("/tokens", {"name": "laptop", "scope": "read"})
    assert made.status_code == 201
    token = made.json()
    assert token["text"].startswith(token["prefix"]) and token["text"].startswith("mst_")
    assert (token["scope"], token["team"], token["user"], token["last_used_at"]) == ("read", None, "owner", None)
    assert made["Cache-Control"] == "no-store"
    row = Token.objects.get(pk=token["id"])
    assert timedelta(days=89) < row.expires_at - timezone.now() <= timedelta(days=90)
    listed = next(one for one in using.get("/tokens").json()["results"] if one["id"] == token["id"])
    assert "text" not in listed and token["text"] not in str(Token.objects.filter(pk=row.pk).values())
    fresh = type(using)(using.client, token["text"])
    assert fresh.get("/me").json()["token"]["scope"] == "read"
    row.refresh_from_db()
    assert row.last_used_at is not None
    assert using.delete(f"/tokens/{token['id']}").status_code == 204
    assert fresh.get("/me").status_code == 401
    assert using.delete(f"/tokens/{token['id']}").status_code == 204  # revoking again changes nothing
    assert list(AuditEntry.objects.values_list("act", flat=True)) == ["token.make", "token.revoke"]
    assert token["text"] not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"), ({"name": "x", "scope": "root"}, "scope"), ({"name": "x", "expires_in_days": 366}, "expires_in_days"),
        ({"name": "x", "expires_in_days": 0}, "expires_in_days"), ({"name": "x", "expires_in_days": "1e9"}, "expires_in_days"),
        ({"name": "x", "team": "vision"}, "team"), ({"name": "x", "team": "nowhere"}, "team"),
        ({"name": "x", "service_account": "boss"}, "service_account"), ({"name": "x", "scop": "read"}, "scop"),
    ],
)  # fmt: skip
def test_an_invalid_token_request_names_the_field(api, body, field):
    answer = api("owner").post("/tokens", body)
    assert answer.status_code == 422
    assert f'"{field}"' in answer.text
    assert Token.objects.count() == 1


@pytest.fixture
def weak(people, team) -> User:
    """The owner, authenticated by a token with scope `manage`, for one team, that expires in ten days."""
    token, _ = Token.issue(
        people.owner, "weak", scope="manage", team=team, expires_at=timezone.now() + timedelta(days=10)
    )
    people.owner.grant = token.grant
    return people.owner


def test_a_token_cannot_issue_one_that_expires_later(weak):
    with pytest.raises(InvalidInput, match="later than the expiry of the token in use"):
        tokens.issue(by=weak, name="x", days=11)
    made, _ = tokens.issue(by=weak, name="x")
    assert made.expires_at == weak.grant.expires_at
    assert tokens.issue(by=weak, name="x", days=9)[0].expires_at < weak.grant.expires_at


def test_a_token_cannot_issue_one_for_another_team(weak, team):
    Membership.objects.create(user=weak, team=Team.objects.get(name="vision"), role=Role.ADMIN)
    with pytest.raises(InvalidInput, match="team"):
        tokens.issue(by=weak, name="x", team="vision")
    assert tokens.issue(by=weak, name="x")[0].team == team


@pytest.mark.parametrize("scope", ["read", "submit"])
def test_a_token_without_the_manage_scope_issues_none_and_revokes_only_itself(people, scope):
    user = people.owner
    own, other = Token.issue(user, "own", scope=scope)[0], Token.issue(user, "other")[0]
    user.grant = own.grant
    with pytest.raises(NotAllowed, match="cannot create tokens"):
        tokens.issue(by=user, name="x", scope="read")
    with pytest.raises(NotAllowed, match="can revoke only itself"):
        tokens.revoke(token=other, by=user)
    assert tokens.revoke(token=own, by=user).revoked_at


def test_nobody_sees_or_revokes_the_tokens_of_others(api, people):
    theirs = Token.issue(people.teammate, "theirs")[0]
    for who in ("owner", "boss", "admin"):
        using = api(who)
        assert theirs.pk not in [one["id"] for one in using.get("/tokens").json()["results"]]
        assert using.delete(f"/tokens/{theirs.pk}").status_code == 404
    theirs.refresh_from_db()
    assert theirs.revoked_at is None


def test_a_login_returns_a_submit_token_for_ninety_days_by_default(api, people):
    body = {"username": "owner", "password": "owner-has-a-password"}
    answer = api().post("/login", body).json()
    assert (answer["user"], answer["scope"]) == ("owner", "submit")
    asked = api().post("/login", {**body, "scope": "manage", "expires_in_days": 1}).json()
    row = Token.objects.get(digest=Token.digest_of(asked["token"]))
    assert (row.scope, row.expires_at - timezone.now() <= timedelta(days=1)) == ("manage", True)
    assert api().post("/login", {**body, "expires_in_days": 9999}).status_code == 422


@pytest.mark.parametrize("change", [{"revoked_at": timezone.now()}, {"expires_at": timezone.now()}])
def test_a_revoked_or_expired_token_is_refused_at_once(api, change):
    using = api("boss")
    assert using.get("/me").status_code == 200
    Token.objects.update(**change)
    assert using.get("/me").status_code == 401


def test_the_database_refuses_a_token_without_an_expiry_or_with_an_unknown_scope(people):
    from django.db import IntegrityError, transaction

    with pytest.raises(IntegrityError), transaction.atomic():
        Token.issue(people.owner, "x", scope="root")
    with pytest.raises(IntegrityError), transaction.atomic():
        Token.objects.create(user=people.owner, name="x", prefix="p", digest="d", expires_at=None)


def test_the_query_count_of_a_token_list_is_constant(api, people, django_assert_max_num_queries):
    for number in range(30):
        Token.issue(people.owner, f"token-{number}")
    using = api("owner")
    with django_assert_max_num_queries(4):
        assert len(using.get("/tokens").json()["results"]) == 31


def new_session_key() -> str:
    session = SessionStore()
    session.create()
    return session.session_key


def test_tokens_and_session_keys_have_enough_entropy(people):
    texts = {Token.issue(people.owner, "x")[1] for _ in range(50)}
    assert len(texts) == 50 and min(len(text) for text in texts) >= len(Token.PREFIX) + 43  # 43 x 6 bits
    keys = {new_session_key() for _ in range(50)}
    assert len(keys) == 50 and {len(key) for key in keys} == {32}  # of 36 letters and digits: 165 bits
    assert len(Token.digest_of("x")) == 64
