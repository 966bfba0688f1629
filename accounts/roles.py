"""Roles and scopes: the two tables of permissions, and the rules for changing roles. Pure; no look-ups.

A role is what a team allows a member, a scope is what a token leaves of that. Whatever a table does not name is
refused, so an unknown role or scope grants nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db.models import TextChoices


class Role(TextChoices):
    """What a member may do in a team."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    ADMIN = "admin", "Administrator"


class Scope(TextChoices):
    """What a token leaves of its user's role."""

    READ = "read", "Read"
    SUBMIT = "submit", "Submit and control jobs"
    MANAGE = "manage", "Everything its user may do"


class Act(StrEnum):
    READ = "read"  # see jobs, logs, code, queues
    SUBMIT = "submit"  # new jobs and workspaces
    CONTROL = "control"  # cancel, suspend, resume, resubmit, change the priority
    MANAGE = "manage"  # queues, members, service accounts, tokens, the audit


ALLOWED: dict[str, frozenset[Act]] = {
    Role.VIEWER: frozenset({Act.READ}),
    Role.MEMBER: frozenset({Act.READ, Act.SUBMIT, Act.CONTROL}),
    Role.ADMIN: frozenset(Act),
}
SCOPES: dict[str, frozenset[Act]] = {
    Scope.READ: frozenset({Act.READ}),
    Scope.SUBMIT: frozenset({Act.READ, Act.SUBMIT, Act.CONTROL}),
    Scope.MANAGE: frozenset(Act),
}
HEIGHT: dict[str, int] = {Role.VIEWER: 1, Role.MEMBER: 2, Role.ADMIN: 3}


@dataclass(frozen=True)
class Grant:
    """What the credential leaves of a user's rights: all with a session; with a token its scope, team and time."""

    acts: frozenset[Act]
    team_id: int | None = None  # None: every team
    token_id: int | None = None
    prefix: str = ""  # of the token, for the audit
    scope: str = ""
    expires_at: datetime | None = None

    def covers(self, act: Act, team_id: int | None) -> bool:
        """Return whether the grant includes `act` in that team.

        `team_id` None means what belongs to no team; a token for one team does not cover that.
        """
        return act in self.acts and (self.team_id is None or self.team_id == team_id)


SESSION = Grant(acts=frozenset(Act))


def allows(role: str | None, act: Act) -> bool:
    return act in ALLOWED.get(role or "", frozenset())


def roles_with(act: Act) -> list[str]:
    return [role for role, acts in ALLOWED.items() if act in acts]


def height(role: str | None) -> int:
    return HEIGHT.get(role or "", 0)


def objection(*, own: str | None, old: str | None, new: str | None) -> str:
    """Return why a user with role `own` may not change a member's role from `old` to `new`; "" is no objection.

    None as a role: no member.
    """
    if height(new) > height(own):
        return f"you cannot grant a role above your own: yours is {own or 'none'}, not {new}"
    if height(old) > height(own):
        return f"you cannot change a member with a higher role: theirs is {old}, yours is {own or 'none'}"
    return ""


def is_last_admin(name: str, admins: Iterable[str]) -> bool:
    """Return whether the team would be without an administrator if `name` were none."""
    return set(admins) == {name}
