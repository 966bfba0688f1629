"""The only writers of a team's secrets: administrators of the team. Each change writes its audit entry in its own transaction.

Values are written, never read. A job of any member may use a secret of its team, and a program can print what it uses:
what a secret is for, its team decides.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Prefetch, QuerySet
from django.http import Http404

from accounts import audit, in_use, members
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import Act, require
from common.errors import Conflict, InvalidInput, Problem, Refused

from .models import Kind, SecretVersion, TeamSecret
from .sealing import seal, unseal

MOST = 50  # of one team
MOST_KEYS = 50  # of one secret
MOST_BYTES = 32 * 1024  # of one secret's values together; a Kubernetes Secret with all of a job's holds 1 MiB
IN_USE = "team secret"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # as of teams, jobs and webhooks
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}|\.[A-Za-z0-9_][A-Za-z0-9_.-]{0,98}")
_EXAMPLES: Mapping[str, str] = {
    Kind.ENV: '{"HF_TOKEN": "..."}',
    Kind.FILE: '{"key.json": "..."}',
    Kind.REGISTRY: "server, username and password",
}
LOGIN = ("server", "username", "password")


@dataclass(frozen=True)
class Values:
    """What an attempt gets of the secrets that its job names."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)  # by secret, then by file name
    logins: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)  # by secret: LOGIN

    @property
    def docker_config(self) -> str:
        """Return the registry logins in the form of `.dockerconfigjson`; empty if there are none."""
        auths = {
            one["server"]: {
                "username": one["username"],
                "password": one["password"],
                "auth": base64.b64encode(f"{one['username']}:{one['password']}".encode()).decode(),
            }
            for one in self.logins.values()
        }
        return json.dumps({"auths": auths}) if auths else ""


def of_team(user: User, team: str) -> tuple[Team, QuerySet[TeamSecret]]:
    """Return a team that the user may read, and its secrets. Raises Http404 for any other."""
    found = members.readable_team(user, team)
    versions = Prefetch("versions", SecretVersion.objects.defer("sealed").select_related("created_by"))
    return found, TeamSecret.objects.filter(team=found).select_related("team").prefetch_related(versions)


def one_of(user: User, team: str, name: str) -> TeamSecret:
    """Return a secret that the user may know of. Raises Http404."""
    found, secrets = of_team(user, team)
    secret = secrets.filter(name=name).first()
    if secret is None:
        raise Http404(f"team {found.name} has no secret named {name}")
    return secret


def used_by(secret: TeamSecret) -> list[str]:
    """Return which jobs and queues name it, as phrases."""
    return in_use.of(IN_USE, team=secret.team, name=secret.name)


def create(*, team: Team, by: User, name: str, kind: str, values: Mapping[str, str]) -> TeamSecret:
    """Return the new secret. Raises NotAllowed, InvalidInput with one problem per field, and Conflict for a taken name."""
    require(by, Act.MANAGE, team)
    problems = []
    if not NAME.fullmatch(name):
        problems.append(Problem("name", name, "must be 1 to 40 of a-z, 0-9 and -, not beginning or ending with -"))
    if kind not in Kind.values:
        problems.append(Problem("kind", kind, f"is not known; choose from {', '.join(Kind.values)}"))
    if problems := [*problems, *_problems(kind, values)]:
        raise InvalidInput(*problems)
    try:
        with transaction.atomic():
            Team.objects.select_for_update(no_key=True).get(pk=team.pk)
            if TeamSecret.objects.filter(team=team).count() >= MOST:
                raise Conflict(f"team {team.name} has {MOST} secrets already; remove one first", "name", name)
            secret = TeamSecret.objects.create(team=team, name=name, kind=kind, created_by=by)
            _add_version(secret, values, by=by)
            after = {"kind": kind, "entries": sorted(values), "version": 1}
            audit.record(AuditAction.SECRET_MADE, by=by, on=secret, team=team, after=after)
    except IntegrityError as error:
        raise Conflict(f"team {team.name} has a secret named {name} already; choose another name", "name", name) from (
            error
        )
    return secret


def change(*, secret: TeamSecret, by: User, values: Mapping[str, str | None]) -> TeamSecret:
    """Make a version with these values over the ones before; None removes a key. The next attempt of each job gets it.

    Raises NotAllowed, InvalidInput, and Refused where the values before cannot be read any longer.
    """
    require(by, Act.MANAGE, secret.team)
    if not values:
        raise InvalidInput(Problem("values", None, "is empty; give the values to set, and null for keys to remove"))
    with transaction.atomic():
        row = TeamSecret.objects.select_for_update(of=("self",), no_key=True).filter(pk=secret.pk).first()
        if row is None:
            raise Http404(f"secret {secret.name} was removed meanwhile")
        newest = row.versions.get(number=row.version)
        is_whole = set(newest.keys) <= set(values)  # every value is entered again: the old ones need not be read
        before = {} if is_whole else unseal(newest.sealed, name=row.name)
        removed = {key for key, value in values.items() if value is None}
        if unknown := sorted(removed - set(newest.keys)):
            words = f"is not in secret {row.name}; it has {', '.join(sorted(newest.keys))}"
            raise InvalidInput(*(Problem(f"values.{key}", None, words) for key in unknown))
        given = {key: value for key, value in values.items() if value is not None}
        after = {key: value for key, value in {**before, **given}.items() if key not in removed}
        if problems := _problems(row.kind, after):
            raise InvalidInput(*problems)
        row.version += 1
        row.save(update_fields=["version"])
        _add_version(row, after, by=by)
        old = {"entries": sorted(newest.keys), "version": newest.number}
        new = {"entries": sorted(after), "changed": sorted(values), "version": row.version}
        audit.record(AuditAction.SECRET_CHANGED, by=by, on=row, team=row.team, before=old, after=new)
    return row


def remove(*, secret: TeamSecret, by: User) -> None:
    """Delete a secret with all its versions. Raises Conflict while open jobs or queues name it."""
    require(by, Act.MANAGE, secret.team)
    with transaction.atomic():
        # Locked against submissions too, which lock the rows that they name until they are committed (`hold`).
        row = TeamSecret.objects.select_for_update(of=("self",)).filter(pk=secret.pk).first()
        if row is None:
            raise Http404(f"secret {secret.name} was removed meanwhile")
        in_use.refuse(IN_USE, what="secret", team=row.team, name=row.name)
        before = {"kind": row.kind, "version": row.version}
        audit.record(AuditAction.SECRET_REMOVED, by=by, on=row, team=row.team, before=before)
        row.delete()


def kinds(names: Iterable[str], *, team: Team) -> dict[str, str]:
    """Return the kind of each of these names that is a secret of the team."""
    return dict(TeamSecret.objects.filter(team=team, name__in=list(names)).values_list("name", "kind"))


def hold(names: Iterable[str], *, team: Team) -> None:
    """Keep these secrets from being removed until the transaction ends. Raises Conflict for one that is gone."""
    wanted = set(names)
    if not wanted:
        return
    rows = TeamSecret.objects.select_for_update(of=("self",), no_key=True).filter(team=team, name__in=wanted)
    if gone := sorted(wanted - {row.name for row in rows.order_by("pk")}):
        raise Conflict(f"secret {gone[0]} of team {team.name} was removed meanwhile", "team_secrets", gone[0])


def newest(names: Iterable[str], *, team: Team) -> dict[str, int]:
    """Return the version that an attempt begins with, for each of these secrets that exists."""
    return dict(TeamSecret.objects.filter(team=team, name__in=list(names)).values_list("name", "version"))


def read(versions: Mapping[str, int], *, team: Team) -> Values:
    """Return the values of these versions. Only for a launch. Raises Refused for one that is gone or unreadable."""
    if not versions:
        return Values()
    rows = SecretVersion.objects.filter(secret__team=team, secret__name__in=list(versions)).select_related("secret")
    by_name = {row.secret.name: row for row in rows if versions[row.secret.name] == row.number}
    env: dict[str, str] = {}
    files, logins = {}, {}
    for name in sorted(versions):
        row = by_name.get(name)
        if row is None or not row.sealed:
            raise Refused(f"secret {name} of team {team.name} no longer exists in version {versions[name]}")
        values = unseal(row.sealed, name=name)
        match row.secret.kind:
            case Kind.ENV:
                env |= values
            case Kind.FILE:
                files[name] = values
            case _:
                logins[name] = values
    return Values(env, files, logins)


def forget_old(*, used: Iterable[tuple[int, str, int]]) -> int:
    """Delete the values of versions before the newest, except `used` ones: (team, name, number). Return how many."""
    kept = set(used)
    old = SecretVersion.objects.exclude(sealed="").filter(number__lt=F("secret__version"))
    rows = old.values_list("pk", "secret__team_id", "secret__name", "number")
    return SecretVersion.objects.filter(pk__in=[pk for pk, *one in rows if tuple(one) not in kept]).update(sealed="")


def _add_version(secret: TeamSecret, values: Mapping[str, str], *, by: User) -> None:
    SecretVersion.objects.create(
        secret=secret, number=secret.version, keys=sorted(values), sealed=seal(values), created_by=by
    )


def _problems(kind: str, values: Any) -> list[Problem]:
    """Return what is wrong with a secret's values. No problem includes one."""
    if values == {}:
        return [Problem("values", None, "is empty; enter at least one name with its value")]
    if not isinstance(values, Mapping):
        return [Problem("values", None, f"must map names to text, such as {_EXAMPLES.get(kind, _EXAMPLES[Kind.ENV])}")]
    if len(values) > MOST_KEYS:
        return [Problem("values", len(values), f"has at most {MOST_KEYS} entries")]
    problems = []
    for key, value in values.items():
        if problem := _key_problem(kind, key):
            problems.append(Problem(f"values.{key}", None, problem))
        elif not isinstance(value, str) or "\0" in value or not _is_encodable(value):
            problems.append(Problem(f"values.{key}", None, "must be text without NUL; quote numbers"))
        elif not value:
            problems.append(Problem(f"values.{key}", None, "is empty; enter its value, or remove the key"))
    if kind == Kind.REGISTRY and not problems:
        problems += [Problem(f"values.{key}", None, "is missing") for key in LOGIN if key not in values]
    if not problems and sum(len(value.encode()) for value in values.values()) > MOST_BYTES:
        problems.append(too_large())
    return problems


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _key_problem(kind: str, key: Any) -> str:
    """Return what is wrong with the name of one value; empty if nothing is."""
    if not isinstance(key, str):
        return "must be text"
    if kind == Kind.REGISTRY:
        return "" if key in LOGIN else f"is not known; a registry login has {', '.join(LOGIN)}"
    if kind == Kind.FILE:
        return (
            "" if FILE.fullmatch(key) else "is not the name of a file; use at most 100 letters, digits, dots, - and _"
        )
    if not VARIABLE.fullmatch(key):
        return "is not a variable name; use at most 100 letters, digits and _"
    return "is set by Muster; choose another name" if key.startswith("MUSTER_") else ""


def parse_lines(text: str) -> dict[str, str]:
    """Return variables from `NAME=value` lines; blank lines are left out. Raises InvalidInput, which shows no value."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals:
            raise InvalidInput(Problem("values", None, f"line {number} is not of the form NAME=value"))
        found[name.strip()] = value
    return found


def too_large() -> Problem:
    return Problem("values", None, f"have more than {MOST_BYTES} bytes together; use a volume for large files")


def no_text() -> Problem:
    return Problem("values", None, "must be UTF-8 text; encode the file first, for example with base64")
