"""Teams, their members and roles, and service accounts; the rules are `roles.objection` and the last administrator.

Every change locks the team's row first, so that two administrators who remove each other cannot both succeed.
"""

import re
from typing import Any

from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone

from common.errors import Conflict, InvalidInput, NotAllowed, Problem

from . import audit
from .audit import AuditAction
from .models import Membership, Role, Team, Token, User
from .permissions import Act, is_platform_admin, readable_teams, require, require_platform_admin, role_in
from .roles import is_last_admin, objection

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # like a job's name: fits a DNS label


def teams_of(user: User) -> QuerySet[Team]:
    """Return the teams that `user` may read."""
    teams = readable_teams(user)
    return Team.objects.all() if teams is None else Team.objects.filter(pk__in=teams)


def readable_team(user: User, name: str) -> Team:
    """Return the team; raises Http404 for one the user may not read, so that its existence is not revealed."""
    team = teams_of(user).filter(name=name).first()
    if team is None:
        raise Http404(f"you are not a member of a team named {name}")
    return team


def make_team(*, name: str, by: User) -> Team:
    require_platform_admin(by, "make teams")
    _refuse_name("name", name)
    try:
        with transaction.atomic():
            team = Team.objects.create(name=name)
            audit.record(AuditAction.TEAM_MADE, by=by, on=team, team=team, after={"name": name})
    except IntegrityError as error:
        raise Conflict(f"team {name} already exists; choose another name", "name", name) from error
    return team


def members_of(team: Team) -> QuerySet[Membership]:
    return team.memberships.select_related("user").order_by("user__username")


def set_role(*, team: Team, username: str, role: str, by: User) -> tuple[Membership, bool]:
    """Make a user a member, or change a member's role; True when new."""
    with transaction.atomic():
        _lock(team, by)
        user = _account(team, username, role)
        row = Membership.objects.filter(team=team, user=user).first()
        old = row.role if row else None
        _refuse(by, team, user, old=old, new=role)
        if row is None:
            row = Membership.objects.create(team=team, user=user, role=role)
            audit.record(AuditAction.MEMBER_ADDED, by=by, on=user, team=team, after={"role": role})
            return row, True
        if old != role:
            row.role = role
            row.save(update_fields=["role"])
            audit.record(
                AuditAction.MEMBER_CHANGED, by=by, on=user, team=team, before={"role": old}, after={"role": role}
            )
    row.user = user
    return row, False


def losses(*, team: Team, username: str, role: str | None, by: User) -> list[str]:
    """Return what is lost by giving a member this role (None: no membership) and cannot be taken back by who does it.

    Empty where nothing is, or where the change would be refused.
    """
    row = members_of(team).filter(user__username=username).first()
    if row is None or role == Role.ADMIN or row.role != Role.ADMIN:
        return []
    sentences = []
    is_last = is_last_admin(username, _admins(team))
    if is_last and not is_platform_admin(by):
        return []
    if row.user_id == by.pk and not by.is_superuser:
        sentences.append(
            f"You will no longer be an administrator of {team.name}: you cannot change its members, queues, tokens and "
            f"quotas, nor read its audit, until another administrator makes you one again."
        )
    if is_last:
        sentences.append(f"{team.name} will have no administrator: only platform administrators can change it then.")
    return sentences


def remove(*, team: Team, username: str, by: User) -> None:
    """Remove a user from the team: access to it ends at once; jobs and tokens stay."""
    with transaction.atomic():
        _lock(team, by)
        row = members_of(team).filter(user__username=username).first()
        if row is None:
            raise Http404(f"{username} is not a member of team {team.name}")
        if row.user.service_team_id == team.pk:
            raise Conflict(f"{username} is a service account of {team.name}; remove it there", "username", username)
        _refuse(by, team, row.user, old=row.role, new=None)
        row.delete()
        audit.record(AuditAction.MEMBER_REMOVED, by=by, on=row.user, team=team, before={"role": row.role})


def service_accounts_of(team: Team) -> QuerySet[Membership]:
    return members_of(team).filter(user__service_team=team, user__is_active=True)


def make_service_account(*, team: Team, name: str, role: str, by: User) -> Membership:
    """Create an account for a program: `name@team`, without a password, in this team alone."""
    _refuse_name("name", name)
    with transaction.atomic():
        _lock(team, by)
        _known_role(role)
        _refuse(by, team, None, old=None, new=role)
        username = f"{name}@{team.name}"
        if User.objects.filter(username=username).exists():
            raise Conflict(f"{username} already exists; choose another name", "name", name)
        user = User.objects.create(username=username, service_team=team, password=make_password(None))
        row = Membership.objects.create(team=team, user=user, role=role)
        audit.record(AuditAction.SERVICE_MADE, by=by, on=user, team=team, after={"role": role})
    return row


def remove_service_account(*, team: Team, username: str, by: User) -> None:
    """Disable a service account and revoke its tokens; its jobs keep its name, so the account itself stays."""
    with transaction.atomic():
        _lock(team, by)
        row = service_accounts_of(team).filter(user__username=username).first()
        if row is None:
            raise Http404(f"{username} is not a service account of team {team.name}")
        _refuse(by, team, row.user, old=row.role, new=None)
        User.objects.filter(pk=row.user.pk).update(is_active=False)
        Token.objects.filter(user=row.user, revoked_at=None).update(revoked_at=timezone.now())
        row.delete()
        audit.record(AuditAction.SERVICE_REMOVED, by=by, on=row.user, team=team, before={"role": row.role})


def _lock(team: Team, by: User) -> None:
    """Lock the team, so that changes run one at a time, and check permission under the lock.

    An administrator removed a moment ago is thus refused.
    """
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)
    require(by, Act.MANAGE, team)


def _account(team: Team, username: str, role: str) -> User:
    _known_role(role)
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None or user.service_team_id not in (None, team.pk):
        raise InvalidInput(
            Problem("username", username, "no such user, or not allowed in this team; check the spelling")
        )
    return user


def _known_role(role: Any) -> None:
    if role not in Role.values:
        raise InvalidInput(Problem("role", role, f"must be one of {', '.join(Role.values)}"))


def _refuse(by: User, team: Team, user: User | None, *, old: str | None, new: str | None) -> None:
    if words := objection(own=role_in(by, team), old=old, new=new):
        raise NotAllowed(words)
    if user is None or new == Role.ADMIN or is_platform_admin(by):
        return
    if is_last_admin(user.username, _admins(team)):
        raise Conflict(
            f"{user.username} is the last administrator of {team.name}; appoint another administrator first",
            "role",
            new,
        )


def _admins(team: Team) -> list[str]:
    """Return administrators who can still sign in: a team administered only by a program is locked to its people."""
    found = team.memberships.filter(role=Role.ADMIN, user__is_active=True, user__service_team=None)
    return list(found.values_list("user__username", flat=True))


def _refuse_name(field: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput(Problem(field, name, "must be 1 to 40 of a-z, 0-9 and -, not beginning or ending with -"))
