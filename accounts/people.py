"""Invite and deactivate people, and help those who cannot sign in. For platform administrators: there is no sign-up.

`by` None is the server's own command line.
"""

import secrets
import unicodedata
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
            _refuse_look_alike(username)
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


# Letters of other scripts that look like Latin ones, in small type.
_CYRILLIC = "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501"
_CYRILLIC += "\u04bb\u04cf\u051b\u051d\u044c\u0433\u043f\u0432\u043a\u043c\u0442\u043d"
_GREEK = "\u03b1\u03bf\u03bd\u03c1\u03c4\u03c5\u03c7\u03b9\u03ba"
_LOOK_ALIKES = str.maketrans(_CYRILLIC + _GREEK, "aeopcyxijsdhlqwbrnbkmthaovptuxik")
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK")


def skeleton(username: str) -> str:
    """Return what a name looks like to a reader: names with the same skeleton are taken for each other."""
    return unicodedata.normalize("NFKC", username).casefold().translate(_LOOK_ALIKES)


def _refuse_look_alike(username: str) -> None:
    """Refuse a name that is taken for one that is there: Admin beside admin. Raises Conflict."""
    seen = skeleton(username)
    names = User.objects.filter(service_team=None).exclude(username=username).values_list("username", flat=True)
    if taken := next((name for name in names.iterator() if skeleton(name) == seen), ""):
        raise Conflict(f"{username} is easily taken for {taken}; choose another name", "username", username)


def _mixes_scripts(username: str) -> bool:
    letters = (unicodedata.name(letter, "") for letter in username if letter.isalpha())
    return len({script for name in letters for script in _SCRIPTS if name.startswith(script)}) > 1


def _name_problems(username: str) -> list[Problem]:
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError:
        return [Problem("username", username, "must consist of letters, digits and . + - _")]
    if "@" in username or len(username) > 150:
        return [
            Problem("username", username, "must have at most 150 characters and no @, which marks service accounts")
        ]
    if _mixes_scripts(username):
        return [Problem("username", username, "mixes letters of several scripts, which look alike; use one")]
    return []


def _role_problems(role: str) -> list[Problem]:
    return [] if role in Role.values else [Problem("role", role, f"must be one of {', '.join(Role.values)}")]
