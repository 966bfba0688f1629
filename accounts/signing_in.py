"""Trying a name and a password, and writing down how it went: one way for the page and for the API."""

from . import audit, first_password
from .audit import Deed
from .models import User


def note_success(user: User, *, way: str) -> None:
    audit.record(Deed.LOGIN, by=user, on=user, after={"way": way})


def note_failure(username: str, *, way: str) -> None:
    """A name that nobody has is not written down: people type their password there by mistake."""
    user = User.objects.filter(username=username).first() if "\0" not in username else None
    audit.record(Deed.LOGIN_FAILED, by=None, on=user, after={"way": way, "is_known": user is not None})


def may_use_password(user: User) -> bool:
    """Programs have tokens; they have no password either, so this is the second lock."""
    return user.is_active and not user.is_service_account


def objection(user: User) -> str:
    """Why the right password does not open the door all the same; "" is no objection."""
    if first_password.is_over(user):
        return "this first password is over; ask an administrator for a new one, and use it within 14 days"
    return ""
