"""Check a name and a password, and record the outcome: the same way for the page and for the API."""

from django.contrib.auth import authenticate
from django.http import HttpRequest
from django.utils import timezone

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import User

from . import initial_password, second_factor


def note_success(user: User, *, way: str) -> None:
    audit.record(AuditAction.LOGIN, by=user, on=user, after={"way": way})


def note_failure(username: str, *, way: str) -> None:
    """Record a failed sign-in. An unknown name is not recorded: people type their password there by mistake."""
    user = User.objects.filter(username=username).first() if "\0" not in username else None
    audit.record(AuditAction.LOGIN_FAILED, by=None, on=user, after={"way": way, "is_known": user is not None})


def note_wrong_code(user: User, *, way: str) -> None:
    audit.record(
        AuditAction.LOGIN_FAILED, by=None, on=user, after={"way": way, "is_known": True, "step": "second factor"}
    )


def may_use_password(user: User) -> bool:
    """Return whether this user may sign in with a password.

    Programs use tokens; they have no password either, so this is a second safeguard.
    """
    return user.is_active and not user.is_service_account


def is_password_of(request: HttpRequest, user: User, password: str) -> bool:
    """Return whether it is the user's password, asked for again before a grave change; a wrong one counts as a sign-in."""
    if may_use_password(user) and authenticate(request, username=user.get_username(), password=password[:512]) == user:
        return True
    note_failure(user.get_username(), way="account")
    return False


def objection(user: User) -> str:
    """Return why the right password is not enough; "" is no objection."""
    if initial_password.is_over(user):
        return "this initial password has expired; ask an administrator for a new one and use it within 14 days"
    return ""


_HALF = "half_signed_in"
HALF_SECONDS = 300


def begin_half(request: HttpRequest, user: User) -> None:
    """Note that the password was right and a code must follow; the new session key defeats session fixation."""
    request.session.cycle_key()
    request.session[_HALF] = [user.pk, int(timezone.now().timestamp()), user.get_session_auth_hash()]


def half(request: HttpRequest) -> User | None:
    """Return the user who gave the right password in this session within the last HALF_SECONDS, if a code is due."""
    pk, at, proof = request.session.get(_HALF) or (0, 0, "")
    if timezone.now().timestamp() - at > HALF_SECONDS:
        return None
    user = User.objects.filter(pk=pk).first()
    if user is None or not may_use_password(user) or proof != user.get_session_auth_hash():
        return None
    return user if second_factor.is_asked(user) else None


def end_half(request: HttpRequest) -> None:
    request.session.pop(_HALF, None)
