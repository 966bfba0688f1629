"""Make people who were given a password choose their own before anything else; see docs/security.md."""

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
    is_demo = settings.MUSTER_KEEP_FIRST_PASSWORD and not open_to_others(settings.ALLOWED_HOSTS)
    return not (user.is_superuser and is_demo)


def is_over(user: User) -> bool:
    return must_change(user) and user.first_password_until is not None and user.first_password_until < timezone.now()
