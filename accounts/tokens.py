"""Issue and revoke API tokens.

A token may have fewer rights than its user, and never more than the token that made it.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from common.errors import InvalidInput, NotAllowed, Problem

from . import audit
from .audit import AuditAction
from .models import TOKEN_DAYS, Scope, Team, Token, User
from .permissions import Act, readable_teams, require, teams_where
from .roles import SCOPES

MOST_DAYS = 365


def issue(
    *,
    by: User,
    name: str,
    scope: str = Scope.SUBMIT,
    team: str | None = None,
    days: int | None = None,
    service_account: str | None = None,
) -> tuple[Token, str]:
    """Issue a token; return it with its text.

    Raises NotAllowed, and InvalidInput naming the field that exceeds a limit.
    """
    if Act.MANAGE not in by.grant.acts:
        raise NotAllowed(
            f"a token of scope {by.grant.scope!r} cannot create tokens; sign in, or use one with scope manage"
        )
    user = (
        _service_account(by, service_account or by.get_username()) if service_account or by.is_service_account else by
    )
    problems = [*_scope_problems(by, scope), *_days_problems(by, days)]
    if problems:
        raise InvalidInput(*problems)
    return make(user, name, by=by, scope=scope, team=_team(by, user, team), expires_at=_end(by, days))


def make(
    user: User, name: str, *, by: User, scope: str, team: Team | None = None, expires_at: datetime | None = None
) -> tuple[Token, str]:
    """Create the row and its audit entry; permissions were checked before."""
    with transaction.atomic():
        token, text = Token.issue(user, name, scope=scope, team=team, expires_at=expires_at)
        audit.record(AuditAction.TOKEN_MADE, by=by, on=token, team=team or user.service_team, after=_audited(token))
    return token, text


def revoke(*, token: Token, by: User) -> Token:
    """Revoke a token for good. Every token may revoke itself; others need scope manage. Raises NotAllowed."""
    if Act.MANAGE not in by.grant.acts and token.pk != by.grant.token_id:
        raise NotAllowed(
            f"a token of scope {by.grant.scope!r} can revoke only itself; sign in, or use one with scope manage"
        )
    with transaction.atomic():
        row = Token.objects.select_for_update(of=("self",), no_key=True).select_related("user", "team").get(pk=token.pk)
        if row.revoked_at is None:
            row.revoked_at = timezone.now()
            row.save(update_fields=["revoked_at"])
            after = {"for": row.user.get_username(), "prefix": row.prefix, "revoked_at": row.revoked_at}
            team = row.team or row.user.service_team
            audit.record(AuditAction.TOKEN_REVOKED, by=by, on=row, team=team, before={"revoked_at": None}, after=after)
    return row


def revoke_all(user: User, *, by: User) -> int:
    """Revoke every valid token of this user, within the caller's transaction; return how many there were."""
    found = list(user.tokens.valid())
    for token in found:
        revoke(token=token, by=by)
    return len(found)


def visible(user: User) -> QuerySet[Token]:
    """Return a user's own tokens, and those of service accounts of the teams they administer."""
    found = Token.objects.select_related("user", "team")
    own = Q(user=user) if user.grant.team_id is None else Q(user=user, team=user.grant.team_id)
    teams = teams_where(user, Act.MANAGE)
    theirs = Q(user__service_team__isnull=False) if teams is None else Q(user__service_team__in=teams)
    return found.filter(own | theirs)


def _service_account(by: User, name: str) -> User:
    found = User.objects.select_related("service_team").filter(username=name, is_active=True).first()
    teams = readable_teams(by)
    if found is None or found.service_team is None or (teams is not None and found.service_team_id not in teams):
        raise InvalidInput(
            Problem("service_account", name, "is not a service account of your teams; create it there first")
        )
    require(by, Act.MANAGE, found.service_team)
    return found


def _team(by: User, user: User, name: str | None) -> Team | None:
    """Return the team the token is limited to; a token for one team makes tokens for that team alone.

    Raises InvalidInput.
    """
    only = by.grant.team_id
    if name is None:
        return Team.objects.get(pk=only) if only is not None else None
    found = Team.objects.filter(name=name).first()
    teams = readable_teams(user)
    if found is None or (teams is not None and found.pk not in teams):
        raise InvalidInput(Problem("team", name, f"is not a team of {user.get_username()}; omit it for every team"))
    if only not in (None, found.pk):
        raise InvalidInput(Problem("team", name, "is not the team of the token in use; sign in to choose it"))
    return found


def _scope_problems(by: User, scope: str) -> list[Problem]:
    if scope not in SCOPES:
        return [Problem("scope", scope, f"must be one of {', '.join(SCOPES)}")]
    if not SCOPES[scope] <= by.grant.acts:
        return [
            Problem(
                "scope", scope, f"is wider than the scope of the token in use ({by.grant.scope}); sign in to create it"
            )
        ]
    return []


def _days_problems(by: User, days: int | None) -> list[Problem]:
    if days is None:
        return []
    if not 1 <= days <= MOST_DAYS:
        return [Problem("expires_in_days", days, f"must be from 1 to {MOST_DAYS}, not {days}")]
    last = by.grant.expires_at
    if last is not None and timezone.now() + timedelta(days=days) > last:
        return [
            Problem(
                "expires_in_days",
                days,
                f"is later than the expiry of the token in use ({last:%Y-%m-%d}); choose an earlier date",
            )
        ]
    return []


def _end(by: User, days: int | None) -> datetime:
    asked = timezone.now() + timedelta(days=days or TOKEN_DAYS)
    return min(asked, by.grant.expires_at or asked)


def _audited(token: Token) -> dict[str, object]:
    return {
        "for": token.user.get_username(),
        "prefix": token.prefix,
        "scope": token.scope,
        "team": token.team.name if token.team else None,
        "expires_at": token.expires_at,
    }
