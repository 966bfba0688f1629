"""The permission tables and the rules for changing roles, without a database."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.roles import ALLOWED, HEIGHT, SCOPES, SESSION, Act, Grant, Role, Scope, allows, height, objection

ROLES = st.sampled_from([*Role.values, None]) | st.text(max_size=12)
SCOPE_NAMES = st.sampled_from(Scope.values) | st.text(max_size=12)
ACTS = st.sampled_from(Act)
TEAMS = st.sampled_from([None, 1, 2])


def grant(scope: str, team_id: int | None = None) -> Grant:
    return Grant(SCOPES.get(scope, frozenset()), team_id, scope=scope, expires_at=datetime(2030, 1, 1, tzinfo=UTC))


def test_the_tables_cover_exactly_the_known_roles_and_scopes():
    assert set(ALLOWED) == set(HEIGHT) == set(Role.values)
    assert set(SCOPES) == set(Scope.values)


def test_each_higher_role_allows_strictly_more_acts():
    rising = sorted(Role.values, key=height)
    assert all(ALLOWED[low] < ALLOWED[high] for low, high in zip(rising, rising[1:], strict=False))


@given(ROLES, ACTS)
def test_a_role_allows_exactly_its_acts_and_an_unknown_role_none(role, act):
    assert allows(role, act) == (role in Role.values and act in ALLOWED[role])


@given(SCOPE_NAMES, TEAMS, ACTS, TEAMS)
def test_a_scope_covers_exactly_its_acts_in_its_team_and_an_unknown_scope_none(scope, only, act, team):
    expected = scope in Scope.values and act in SCOPES[scope] and (only is None or only == team)
    assert grant(scope, only).covers(act, team) == expected


@given(ACTS, TEAMS)
def test_a_session_covers_every_act(act, team):
    assert SESSION.covers(act, team)


@given(ROLES, ROLES, ROLES)
def test_nobody_grants_or_changes_above_themselves(own, old, new):
    words = objection(own=own, old=old, new=new)
    assert bool(words) == (height(new) > height(own) or height(old) > height(own))


@pytest.mark.parametrize(
    ("own", "old", "new", "words"),
    [
        ("member", None, "admin", "above your own"),
        ("viewer", "member", "viewer", "higher role"),
        ("member", "admin", None, "higher role"),
        ("owner of everything", None, "viewer", "above your own"),
        ("admin", "admin", None, ""),
        ("admin", None, "admin", ""),
    ],
)
def test_an_objection_names_the_violated_rule(own, old, new, words):
    found = objection(own=own, old=old, new=new)
    assert words in found and bool(words) == bool(found)
