"""Make people who were given a password choose their own before anything else; see docs/sign-in.md."""

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from common.startup_checks import open_to_others

WAY = "/account/password"
WORDS = f"this password was set by somebody else; sign in on the web and choose your own at {WAY} first"


def must_change(user: User) -> bool:
    """Return whether this user must choose their own password first.

    The administrator that bin/demo creates is exempt while only this machine is served: anyone who can read the
    password on that terminal already has the files and the database. Once other hosts are served, the rule applies to
    that account too. In other installations it always does: the password stands in a log.
    """
    if user.first_password_until is None:
        return False
    return not (settings.MUSTER_KEEP_FIRST_PASSWORD and _is_administrator_here(user))


def is_over(user: User) -> bool:
    """Return whether this user's first password is too old even to choose another one.

    Not that of an administrator while only this machine is served: releases before let them keep it, and nobody else
    there could give them a new one.
    """
    if not must_change(user) or user.first_password_until is None or _is_administrator_here(user):
        return False
    return user.first_password_until < timezone.now()


def _is_administrator_here(user: User) -> bool:
    return user.is_superuser and not open_to_others(settings.ALLOWED_HOSTS)
