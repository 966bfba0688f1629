"""A person's own browser sign-ins: list them, end one or all others. Tokens are separate."""

import hashlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.auth import get_user
from django.http import HttpRequest
from django.utils import timezone

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import SignIn, User
from accounts.session_store import SessionStore

from . import session_lifetime


@dataclass(frozen=True)
class ListedSession:
    ref: str  # identifies it on the page without granting access
    since: datetime
    seen: datetime
    ip: str
    program: str
    is_this: bool


def user_of_session(key: str) -> User | None:
    """Return the user who is signed in with this cookie value; writes nothing, except to end an expired session."""
    request = HttpRequest()
    request.session = SessionStore(key)
    user = get_user(request)
    is_over = session_lifetime.is_over(dict(request.session.items()), int(time.time()))
    return user if isinstance(user, User) and not is_over else None


def of(user: User, *, this: str | None) -> list[ListedSession]:
    """Return a user's sessions, this one first, then by latest use; expired and idle ones excluded."""
    now = int(time.time())
    rows = SignIn.objects.filter(user=user, expire_date__gt=timezone.now())
    found = [(row, row.get_decoded()) for row in rows]
    shown = [_shown(row, data, this) for row, data in found if data and not session_lifetime.is_over(data, now)]
    return sorted(shown, key=lambda one: (one.is_this, one.seen), reverse=True)


def end(user: User, ref: str) -> bool:
    """End one session; return whether it existed. Its cookie is anonymous from the next request on."""
    with audit.change():
        keys = [row.session_key for row in SignIn.objects.filter(user=user) if ref_of(row.session_key) == ref]
        return bool(keys) and _end(user, keys)


def end_others(user: User, *, this: str | None) -> bool:
    """End all other sessions; return whether there were any."""
    with audit.change():
        keys = SignIn.objects.filter(user=user).exclude(session_key=this or "").values_list("session_key", flat=True)
        return bool(keys) and _end(user, list(keys))


def ref_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _end(user: User, keys: list[str]) -> bool:
    SignIn.objects.filter(session_key__in=keys).delete()
    audit.record(AuditAction.SESSION_ENDED, by=user, on=user, after={"ended": len(keys)})
    return True


def _shown(row: SignIn, data: dict[str, object], this: str | None) -> ListedSession:
    since, seen = (
        datetime.fromtimestamp(int(str(data.get(name, 0))), UTC)
        for name in (session_lifetime.SINCE, session_lifetime.SEEN)
    )
    program = _program(str(data.get(session_lifetime.AGENT, "")))
    return ListedSession(
        ref_of(row.session_key),
        since,
        seen,
        str(data.get(session_lifetime.FROM) or ""),
        program,
        row.session_key == this,
    )


# Browsers' markers in the user agent, the most specific first: most also name the others.
_PROGRAMS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS", "Linux")


def _program(agent: str) -> str:
    """Return `Firefox on Linux`; for unknown programs, the start of their user agent."""
    name = next((name for word, name in _PROGRAMS if word in agent), agent[:40])
    system = next((word for word in _SYSTEMS if word in agent), "")
    return f"{name} on {system}" if name and system else name or "unknown"
