"""What an open stream was opened with, and whether that still holds.

A request is checked when it comes; a stream stays open for minutes, and must end when its token or session is revoked,
its user deactivated or removed from the team. A hint triggers a check at once (audit.MAY_END_ACCESS,
doorbell.access_changed); a periodic check finds what the hint misses, and what expires.
"""

import time
from dataclasses import dataclass, field
from typing import Self

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from .models import SignIn, Token, User
from .permissions import readable_teams
from .signin import session_lifetime


@dataclass(frozen=True)
class Access:
    user: int
    teams: frozenset[int] | None  # whose data the stream reads; None: all
    token: int | None = None
    session: str = field(default="", repr=False)

    @classmethod
    def of(cls, user: User, *, session: str | None, teams: frozenset[int] | None) -> Self:
        """Return the access of the token that authentication noted on the user, else of the session."""
        token = user.grant.token_id
        return cls(user.pk, teams, token, "" if token is not None else session or "")

    def holds(self) -> bool:
        """Return whether the access still holds; queries the database."""
        user = _by_token(self.token) if self.token is not None else _by_session(self)
        if user is None or user.pk != self.user or not user.is_active:
            return False
        teams = readable_teams(user)
        return teams is None or (self.teams is not None and self.teams.issubset(teams))


def _by_token(pk: int) -> User | None:
    token = Token.objects.valid().select_related("user").filter(pk=pk).first()
    if token is None:
        return None
    token.user.grant = token.grant
    return token.user


def _by_session(access: Access) -> User | None:
    """Return the session's user, as Django's own check would: an unexpired row, made with the current password."""
    found = SignIn.objects.filter(session_key=access.session, expire_date__gt=timezone.now())
    row = found.select_related("user").first()
    if row is None or row.user is None:
        return None
    data = row.get_decoded()
    known = [row.user.get_session_auth_hash(), *row.user.get_session_auth_fallback_hash()]
    is_of_today = any(constant_time_compare(str(data.get(HASH_SESSION_KEY, "")), one) for one in known)
    is_theirs = data.get(SESSION_KEY) == str(row.user.pk)
    return row.user if is_theirs and is_of_today and not session_lifetime.is_over(data, int(time.time())) else None
