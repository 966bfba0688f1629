"""One table says who may do what; whatever it does not name is refused."""

from enum import StrEnum

from controlplane.errors import NotAllowed

from .models import Membership, Role, Team, User


class Act(StrEnum):
    READ = "read"  # see jobs, logs, code, queues
    SUBMIT = "submit"  # new jobs and workspaces
    CONTROL = "control"  # cancel, suspend, resume, resubmit
    MANAGE = "manage"  # queues, members


ALLOWED: dict[str, frozenset[Act]] = {
    Role.VIEWER: frozenset({Act.READ}),
    Role.MEMBER: frozenset({Act.READ, Act.SUBMIT, Act.CONTROL}),
    Role.ADMIN: frozenset({Act.READ, Act.SUBMIT, Act.CONTROL, Act.MANAGE}),
}


def may(user: User, act: Act, team: Team) -> bool:
    """Deny by default: no membership, an inactive user or an unknown role is nothing."""
    if not user.is_active:
        return False
    if user.is_superuser:
        return True
    membership = Membership.objects.filter(user=user, team=team).only("role").first()
    return membership is not None and act in ALLOWED.get(membership.role, frozenset())


def require(user: User, act: Act, team: Team) -> None:
    if not may(user, act, team):
        raise NotAllowed(f"{user.get_username()} may not {act} in team {team.name}; ask one of its administrators")


def readable_teams(user: User) -> "list[int] | None":
    """Ids of the teams whose things `user` may read; None means all of them."""
    if user.is_superuser and user.is_active:
        return None
    roles = [role for role, acts in ALLOWED.items() if Act.READ in acts]
    return list(Membership.objects.filter(user=user, role__in=roles).values_list("team_id", flat=True))
