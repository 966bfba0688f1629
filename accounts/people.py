"""Invite and deactivate people, and help those who cannot sign in. For platform administrators: there is no sign-up.

`by` None is the server's own command line.
"""

import secrets
from datetime import datetime, timedelta

from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from common.errors import Conflict, InvalidInput, NotAllowed, Problem

from . import audit
from .audit import AuditAction
from .models import Membership, Role, Team, User
from .permissions import require_platform_admin
from .signin import second_factor

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without letters that look alike
FIRST_PASSWORD = timedelta(days=14)  # long enough for a holiday, too short for a forgotten note


def make(*, username: str, team: Team | None, role: str, by: User | None = None) -> tuple[User, str]:
    """Create a person; return them with a first password, which cannot be recovered later."""
    _require(by)
    problems = [*_name_problems(username), *_role_problems(role)]
    if problems:
        raise InvalidInput(*problems)
    password, until = first_password()
    try:
        with transaction.atomic():
            user = User.objects.create_user(username, password=password, first_password_until=until)
            audit.record(AuditAction.PERSON_MADE, by=by, on=user, team=team)
            if team is not None:
                Membership.objects.create(user=user, team=team, role=role)
                audit.record(AuditAction.MEMBER_ADDED, by=by, on=user, team=team, after={"role": role})
    except IntegrityError as error:
        raise Conflict(f"{username} already exists; choose another name", "username", username) from error
    return user, password


def make_first(*, username: str) -> str | None:
    """Create the first platform administrator and return their first password; None if there are people already."""
    if problems := _name_problems(username):
        raise InvalidInput(*problems)
    password, until = first_password()
    with transaction.atomic():
        if User.objects.exists():
            return None
        user = User.objects.create_superuser(username, password=password, first_password_until=until)
        audit.record(AuditAction.PERSON_MADE, by=None, on=user)
    return password


def first_password() -> tuple[str, datetime]:
    """Return a password to hand to another person, and when it expires: they use it to choose their own."""
    text = "-".join("".join(secrets.choice(_LETTERS) for _ in range(5)) for _ in range(4))
    return text, timezone.now() + FIRST_PASSWORD


def give_password(*, username: str, by: User | None = None) -> str:
    """Reset a forgotten password to a new first password. Ends all sessions of that person; tokens stay."""
    _require(by)
    _refuse_self(username, by, "change your own password on your account's page, where the current one is asked for")
    password, until = first_password()
    with transaction.atomic():
        user = _locked(username)
        if user.is_service_account:
            raise InvalidInput(Problem("username", username, "is a service account, which has tokens and no password"))
        user.set_password(password)
        user.first_password_until = until
        user.save(update_fields=["password", "first_password_until"])
        audit.record(AuditAction.PASSWORD_GIVEN, by=by, on=user)
    return password


def remove_second_factor(*, username: str, by: User | None = None) -> bool:
    """Remove the second factor, so that its owner can set up another; return whether there was one."""
    _require(by)
    _refuse_self(username, by, "remove your own second factor on your account's page")
    user = User.objects.filter(username=username).first()
    if user is None:
        raise _nobody(username)
    return second_factor.remove(user, by=by)


def set_active(*, username: str, is_active: bool, by: User | None = None) -> User:
    """Activate or deactivate a person.

    An inactive one cannot sign in; sessions and tokens stop at once, and work again after activation.
    """
    _require(by)
    _refuse_self(username, by, "you cannot deactivate yourself; another platform administrator can")
    with transaction.atomic():
        if by is not None:  # both, in one order: two administrators who deactivate each other cannot both succeed
            both = User.objects.select_for_update(no_key=True).filter(Q(pk=by.pk) | Q(username=username)).order_by("pk")
            if not any(one.pk == by.pk and one.is_active and one.is_superuser for one in both):
                raise NotAllowed(f"{by.get_username()} may not manage people any longer")
        user = _locked(username)
        if user.is_active != is_active:
            user.is_active = is_active
            user.save(update_fields=["is_active"])
            before, after = {"is_active": not is_active}, {"is_active": is_active}
            audit.record(AuditAction.PERSON_CHANGED, by=by, on=user, before=before, after=after)
    return user


def matching(text: str) -> QuerySet[User]:
    """Return the people whose name contains `text`, by name."""
    people = User.objects.filter(service_team=None).order_by("username")
    return people.filter(username__icontains=text) if text else people


def _require(by: User | None) -> None:
    if by is not None:
        require_platform_admin(by, "manage people")


def _refuse_self(username: str, by: User | None, words: str) -> None:
    if by is not None and username == by.get_username():
        raise Conflict(words, "username", username)


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
