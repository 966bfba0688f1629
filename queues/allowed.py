"""Which objects of a cluster a team's pods may name: service accounts, pull secrets, Secrets, ConfigMaps and claims.

Platform administrators keep the list, which is empty at first. Objects of Muster's own can never be on it.
"""

import re
from collections.abc import Iterable
from typing import Any

from django.db import transaction

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import require_platform_admin
from common.errors import InvalidInput, Problem

from . import clusters
from .models import AllowedObject

NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_OWN = re.compile(r"(m-.*|muster(-.*)?)\Z")  # names of Muster's own objects (jobs/clusters/kubernetes/build/labels.py)
Kind = AllowedObject.Kind


def is_own(name: str) -> bool:
    """Whether an object of this name is, or may be, one of Muster's own."""
    return bool(_OWN.match(name))


def allow(*, team: Team, by: User | None, cluster: str, kind: str, name: str) -> AllowedObject:
    """Put an object on the list. Raises NotAllowed and InvalidInput. Idempotent."""
    if by is not None:
        require_platform_admin(by, "allow objects of clusters")
    problems = []
    if not clusters.is_known(cluster):
        problems.append(Problem("cluster", cluster, f"must be one of {', '.join(clusters.names())}"))
    if kind not in Kind.values:
        problems.append(Problem("kind", kind, f"is not known; choose from {', '.join(Kind.values)}"))
    if not NAME.match(name):
        problems.append(Problem("name", name, "is not the name of an object; use a-z, 0-9, - and ."))
    elif is_own(name):
        problems.append(
            Problem("name", name, "is kept for Muster's own objects, which no job may use; choose another one")
        )
    if problems:
        raise InvalidInput(*problems)
    with transaction.atomic():
        row, is_new = AllowedObject.objects.get_or_create(
            team=team, cluster=cluster, kind=kind, name=name, defaults={"created_by": by}
        )
        if is_new:
            audit.record(AuditAction.OBJECT_ALLOWED, by=by, on=team, team=team, after=_described(row))
    return row


def forbid(*, row: AllowedObject, by: User | None) -> None:
    """Take an object off the list: attempts that begin from now on cannot name it."""
    if by is not None:
        require_platform_admin(by, "forbid objects of clusters")
    with transaction.atomic():
        audit.record(AuditAction.OBJECT_FORBIDDEN, by=by, on=row.team, team=row.team, before=_described(row))
        row.delete()


def names(*, team: Team, cluster: str) -> dict[str, frozenset[str]]:
    """Return the names that the team's pods may use there, by kind."""
    rows = AllowedObject.objects.filter(team=team, cluster=cluster).values_list("kind", "name")
    found: dict[str, set[str]] = {kind: set() for kind in Kind.values}
    for kind, name in rows:
        found[kind].add(name)
    found[Kind.SERVICE_ACCOUNT] |= found[Kind.TOKEN]
    return {kind: frozenset(names) for kind, names in found.items()}


def problems(wanted: Iterable[tuple[str, str, str]], *, team: Team, cluster: str) -> list[Problem]:
    """Return a problem for each (path, kind, name) that the team's pods may not name there."""
    asked = list(wanted)
    if not asked:
        return []
    known = names(team=team, cluster=cluster)
    found = []
    for path, kind, name in asked:
        word = _WORDS.get(kind, kind)
        if is_own(name):
            found.append(
                Problem(path, name, f"is one of Muster's own objects, which no job may use; choose another {word}")
            )
        elif kind == Kind.TOKEN:
            found.append(
                Problem(path, name, "cannot be projected; name a service account that is allowed with its token")
            )
        elif name not in known.get(kind, ()):
            listed = f"allowed are {', '.join(sorted(known[kind]))}" if known.get(kind) else "none is allowed yet"
            words = f"is no {word} that team {team.name} may name on cluster {cluster}: {listed}; a platform administrator allows it"
            found.append(Problem(path, name, words))
    return found


_WORDS: dict[str, str] = {kind.value: kind.label.lower() for kind in Kind} | {
    Kind.SECRET: "Secret", Kind.CONFIG_MAP: "ConfigMap", Kind.CLAIM: "claim",
}  # fmt: skip


def _described(row: AllowedObject) -> dict[str, Any]:
    return {"cluster": row.cluster, "kind": row.kind, "name": row.name}
