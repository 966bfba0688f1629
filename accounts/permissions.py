"""The only place that decides permissions: a user's role in the team, limited by the credential (`user.grant`)."""

from common.errors import NotAllowed

from .models import Membership, Team, User
from .roles import ALLOWED, Act, Role, Scope, allows, roles_with

__all__ = [
    "ALLOWED",
    "Act",
    "is_platform_admin",
    "may",
    "readable_teams",
    "require",
    "require_platform_admin",
    "role_in",
    "teams_where",
]


def may(user: User, act: Act, team: Team) -> bool:
    """Return whether `user` may `act`. Denied by default: no membership, an inactive user, an unknown role or scope."""
    return user.is_active and user.grant.covers(act, team.pk) and allows(role_in(user, team), act)


def role_in(user: User, team: Team) -> str | None:
    """Return the role as stored; a platform administrator is an administrator of every team."""
    if user.is_superuser:
        return Role.ADMIN
    return Membership.objects.filter(user=user, team=team).values_list("role", flat=True).first()


def require(user: User, act: Act, team: Team) -> None:
    if may(user, act, team):
        return
    if user.is_active and allows(role_in(user, team), act):
        raise NotAllowed(_because_of_token(user, act, team))
    raise NotAllowed(f"{user.get_username()} may not {act} in team {team.name}; ask one of its administrators")


def teams_where(user: User, act: Act, *, with_scope: Act | None = None) -> "list[int] | None":
    """Return the ids of the teams in which `user` may `act`; None means all of them.

    `with_scope`: what the credential has to cover instead: those who may submit may look with a token that only reads.
    """
    grant, scope = user.grant, with_scope or act
    if not user.is_active or scope not in grant.acts:
        return []
    if user.is_superuser:
        return None if grant.team_id is None else [grant.team_id]
    teams = Membership.objects.filter(user=user, role__in=roles_with(act)).values_list("team_id", flat=True)
    return [team for team in teams if grant.covers(scope, team)]


def readable_teams(user: User) -> "list[int] | None":
    """Return the ids of the teams whose data `user` may read; None means all of them."""
    return teams_where(user, Act.READ)


def is_platform_admin(user: User) -> bool:
    """Return whether `user` may change what belongs to no team; a token needs scope manage, and no team."""
    return user.is_active and user.is_superuser and user.grant.covers(Act.MANAGE, None)


def require_platform_admin(user: User, wish: str) -> None:
    if is_platform_admin(user):
        return
    if user.is_active and user.is_superuser:
        raise NotAllowed(
            f"this token may not {wish}; that requires one with scope {Scope.MANAGE} that is not limited to a team"
        )
    raise NotAllowed(f"{user.get_username()} may not {wish}; ask a platform administrator")


def _because_of_token(user: User, act: Act, team: Team) -> str:
    if user.grant.team_id not in (None, team.pk):
        return f"this token is limited to a team other than {team.name}; create one for that team, or for every team"
    return f"this token has scope {user.grant.scope!r}, which does not allow {act}; create one with a wider scope"
