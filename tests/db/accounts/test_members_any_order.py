"""Random sequences of membership changes by different users: the rules of a team hold after each change."""

import pytest
from django.db import transaction
from django.http import Http404
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts import members
from accounts.models import AuditEntry, Role, Team, User
from accounts.roles import height
from common.errors import MusterError

pytestmark = pytest.mark.django_db

NAMES = ["boss", "owner", "viewer", "stranger", "ci@nlp", "root", "nobody"]
OUTSIDE = ["root"]
STEPS = st.tuples(
    st.sampled_from(["boss", "boss", "owner", "viewer", "stranger", "ci@nlp", "root"]),
    st.sampled_from(["set", "set", "remove", "remove service"]),
    st.sampled_from(NAMES),
    st.sampled_from([*Role.values, "owner"]),
)


def act(team: Team, by: User, verb: str, username: str, role: str) -> None:
    if verb == "set":
        members.set_role(team=team, username=username, role=role, by=by)
    elif verb == "remove":
        members.remove(team=team, username=username, by=by)
    else:
        members.remove_service_account(team=team, username=username, by=by)


def roles(team: Team) -> dict[str, str]:
    return dict(team.memberships.filter(user__is_active=True).values_list("user__username", "role"))


def administrators(found: dict[str, str]) -> set[str]:
    return {name for name, role in found.items() if role == Role.ADMIN and "@" not in name}


def check(before: dict[str, str], after: dict[str, str], by: str) -> None:
    changed = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    own = Role.ADMIN if by in OUTSIDE else before.get(by)
    if changed:
        assert own == Role.ADMIN, f"{by} ({own}) changed {changed}"
    for name in changed:
        assert height(after.get(name)) <= height(own) and height(before.get(name)) <= height(own)
    if administrators(before) and by not in OUTSIDE:
        assert administrators(after), f"{by} left the team without an administrator"
    assert set(after.values()) <= set(Role.values)


# Sharing the function-scoped fixtures is intended: each example is rolled back.
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_the_rules_hold_after_every_change(team, people, boss, steps):
    with transaction.atomic():
        members.make_service_account(team=team, name="ci", role="member", by=boss)
        for by, verb, username, role in steps:
            before, written = roles(team), AuditEntry.objects.count()
            try:
                act(team, User.objects.get(username=by), verb, username, role)
            except (MusterError, Http404):
                assert roles(team) == before
            after = roles(team)
            check(before, after, by)
            assert AuditEntry.objects.count() - written == (before != after)
        transaction.set_rollback(True)
