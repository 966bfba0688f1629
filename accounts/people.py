"""Create and deactivate people. Only from the server's own command line: there is no sign-up."""

import secrets
from datetime import datetime, timedelta

from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from common.errors import Conflict, InvalidInput, Problem

from . import audit
from .audit import AuditAction
from .models import Membership, Role, Team, User
from .signin import second_factor

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without letters that look alike
FIRST_PASSWORD = timedelta(days=14)  # long enough for a holiday, too short for a forgotten note


def make(*, username: str, team: Team | None, role: str) -> tuple[User, str]:
    """Create a person; return them with a first password, which cannot be recovered later."""
    problems = [*_name_problems(username), *_role_problems(role)]
    if problems:
        raise InvalidInput(*problems)
    password, until = first_password()
    try:
        with transaction.atomic():
            user = User.objects.create_user(username, password=password, first_password_until=until)
            audit.record(AuditAction.PERSON_MADE, by=None, on=user, team=team)
            if team is not None:
                Membership.objects.create(user=user, team=team, role=role)
                audit.record(AuditAction.MEMBER_ADDED, by=None, on=user, team=team, after={"role": role})
    except IntegrityError as error:
        raise Conflict(f"{username} already exists; choose another name", "username", username) from error
    return user, password


def first_password() -> tuple[str, datetime]:
    """Return a password to hand to another person, and when it expires: they use it to choose their own."""
    text = "-".join("".join(secrets.choice(_LETTERS) for _ in range(5)) for _ in range(4))
    return text, timezone.now() + FIRST_PASSWORD


def give_password(*, username: str) -> str:
    """Reset a forgotten password to a new first password. Ends all sessions of that person; tokens stay."""
    password, until = first_password()
    with transaction.atomic():
        user = _locked(username)
        if user.is_service_account:
            raise InvalidInput(Problem("username", username, "is a service account, which has tokens and no password"))
        user.set_password(password)
        user.first_password_until = until
        user.save(update_fields=["password", "first_password_until"])
        audit.record(AuditAction.PASSWORD_GIVEN, by=None, on=user)
    return password


def remove_second_factor(*, username: str) -> bool:
    """Remove the second factor; return whether there was one."""
    user = User.objects.filter(username=username).first()
    if user is None:
        raise _nobody(username)
    return second_factor.remove(user, by=None)


def set_active(*, username: str, is_active: bool) -> User:
    """Activate or deactivate a person.

    An inactive one cannot sign in; sessions and tokens stop at once, and work again after activation.
    """
    with transaction.atomic():
        user = _locked(username)
        if user.is_active != is_active:
            user.is_active = is_active
            user.save(update_fields=["is_active"])
            before, after = {"is_active": not is_active}, {"is_active": is_active}
            audit.record(AuditAction.PERSON_CHANGED, by=None, on=user, before=before, after=after)
    return user


def _locked(username: str) -> User:
    user = User.objects.select_for_update(no_key=True).filter(username=username).first()
    if user is None:
        raise _nobody(username)
    return user


def _nobody(username: str) -> InvalidInput:
    return InvalidInput(Problem("username", username, "is not a known user; check the spelling"))


def _name_problems(username: str) -> list[Problem]:
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError:
        return [Problem("username", username, "must consist of letters, digits and . + - _")]
    if "@" in username or len(username) > 150:
        return [
            Problem("username", username, "must have at most 150 characters and no @, which marks service accounts")
        ]
    return []


def _role_problems(role: str) -> list[Problem]:
    return [] if role in Role.values else [Problem("role", role, f"must be one of {', '.join(Role.values)}")]
