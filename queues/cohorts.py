"""Flavors, cohorts and the quotas of teams: the only writers of these rows. No job is ended by it.

A flavor is one kind of devices of one cluster. A team has a quota of it, which its queues divide; teams of one cohort, or of
cohorts below one, lend each other what they do not use. Platform administrators decide on all three.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Sum

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import require_platform_admin
from common.errors import Conflict, InvalidInput, Problem
from common.signals import doorbell
from common.text import listed

from . import clusters
from .models import Cohort, Flavor, Queue, Resource, TeamQuota

MOST = 1_000_000
MOST_WEIGHT = 1000.0
DEEPEST = 8  # cohorts above one another
NAME = re.compile(r"[-a-zA-Z0-9_]{1,40}")
# A label of a node as Kubernetes has it: a name, with or without a prefix that is a domain.
LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
MOST_LABELS = 10
FIELDS = ("nominal", "borrowing_limit", "lending_limit", "weight", "cohort")
SHOWN = 5


def make_flavor(
    *, by: User | None, name: str, cluster: str, resource: str = Resource.GPU, gpus_per_node: int = 0,
    node_selector: Mapping[str, str] | None = None,
) -> Flavor:  # fmt: skip
    """Make a flavor, or return the one that is there and the same. Raises InvalidInput, Conflict and NotAllowed."""
    _decides(by)
    problems = _name_problems(name)
    if not clusters.is_known(cluster):
        problems.append(Problem("cluster", cluster, f"must be one of {', '.join(clusters.names())}"))
    if resource not in Resource.values:
        problems.append(Problem("resource", resource, f"must be one of {', '.join(Resource.values)}"))
    problems += _whole("gpus_per_node", gpus_per_node, 256, "0 where replicas are not bound to GPU nodes")
    problems += _selector_problems(node_selector or {})
    if problems:
        raise InvalidInput(*problems)
    wanted = {
        "cluster": cluster, "resource": resource, "gpus_per_node": gpus_per_node, "node_selector": dict(node_selector or {}),
    }  # fmt: skip
    if other := _other(name, wanted):
        raise Conflict(f"flavor {other} is the same already; use that one", "name", name)
    with transaction.atomic():
        found, is_new = Flavor.objects.get_or_create(name=name, defaults=wanted)
        if is_new:
            labels = ", ".join(f"{label}={value}" for label, value in sorted((node_selector or {}).items()))
            after = {"name": name, **wanted, "node_selector": labels or None}
            audit.record(
                AuditAction.FLAVOR_MADE, by=by, on=found, after={k: v for k, v in after.items() if v is not None}
            )
        elif differing := [one for one, value in wanted.items() if getattr(found, one) != value]:
            words = f"flavor {name} is there already with another {differing[0]}; a flavor cannot be changed, so choose another name"
            raise Conflict(words, differing[0], wanted[differing[0]])
    return found


def remove_flavor(*, by: User | None, name: str) -> None:
    """Remove a flavor that no queue and no quota has."""
    _decides(by)
    row = flavor_named(name)
    users = [f"queue {one}" for one in row.queues.values_list("name", flat=True)[:SHOWN]]
    users += [f"the quota of team {one}" for one in row.quotas.values_list("team__name", flat=True)[:SHOWN]]
    if users:
        raise Conflict(f"flavor {name} is in use by {listed(users, SHOWN)}; take it from them first", "name", name)
    with transaction.atomic():
        audit.record(AuditAction.FLAVOR_REMOVED, by=by, on=row, before={"name": name})
        row.delete()


def set_cohort(*, by: User | None, name: str, above: str | None = None) -> Cohort:
    """Make a cohort, or move it below another one. Raises InvalidInput and NotAllowed."""
    _decides(by)
    if problems := _name_problems(name):
        raise InvalidInput(*problems)
    with transaction.atomic():
        every = {one.name: one for one in Cohort.objects.select_for_update()}
        parent = every.get(above) if above is not None else None
        if above is not None and parent is None:
            raise InvalidInput(
                Problem("above", above, f"is no cohort; known are {listed(sorted(every), SHOWN) or 'none'}")
            )
        if parent is not None and (problem := _loop(name, parent, every)):
            raise InvalidInput(Problem("above", above, problem))
        row = every.get(name)
        if row is not None and row.parent_id == (parent and parent.pk):
            return row
        before = {"above": row.parent and row.parent.name} if row else {}
        row, _ = Cohort.objects.update_or_create(name=name, defaults={"parent": parent})
        audit.record(AuditAction.COHORT_CHANGED, by=by, on=row, before=before, after={"name": name, "above": above})
        doorbell.poke("jobs.schedule")
    return row


def remove_cohort(*, by: User | None, name: str) -> None:
    """Remove a cohort that has no team and no cohort below it."""
    _decides(by)
    row = cohort_named(name)
    users = [f"cohort {one}" for one in row.children.values_list("name", flat=True)[:SHOWN]]
    users += [f"team {one.team.name}" for one in row.quotas.select_related("team")[:SHOWN]]
    if users:
        raise Conflict(f"cohort {name} has {listed(users, SHOWN)} in it; move them first", "name", name)
    with transaction.atomic():
        audit.record(AuditAction.COHORT_REMOVED, by=by, on=row, before={"name": name})
        row.delete()


def set_quota(
    *, by: User | None, team: Team, flavor: str, reason: str = "", version: int | None = None, **values: Any
) -> TeamQuota:
    """Set a team's quota of a flavor; what is left out stays as it is. Raises InvalidInput, Conflict and NotAllowed.

    `version`: the one that the caller has seen. Jobs keep what they hold, even beyond a lower quota.
    """
    _decides(by)
    kind = flavor_named(flavor)
    if problems := quota_problems(values):
        raise InvalidInput(*problems)
    if "cohort" in values and values["cohort"] is not None:
        values["cohort"] = cohort_named(values["cohort"])
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        row = TeamQuota.objects.filter(team=team, flavor=kind).select_related("cohort").first()
        before = described(row) if row else {}
        if row is None and "nominal" not in values:
            raise InvalidInput(Problem("nominal", None, "must be given: how much belongs to the team"))
        if row is not None and version not in (None, row.version):
            words = f"the quota of team {team.name} was changed since version {version}, to {_said(row)}; look at it, then save again"
            raise Conflict(words, "version", version)
        row = row or TeamQuota(team=team, flavor=kind, version=0)
        for name, value in values.items():
            setattr(row, name, value)
        if problem := _too_little(row):
            raise InvalidInput(problem)
        after = described(row)
        changed = [name for name in after if before.get(name) != after[name]]
        if not changed and row.pk:
            return row
        row.version += 1
        row.save()
        old = {name: before[name] for name in changed if name in before}
        new = {name: after[name] for name in changed} | ({"reason": reason} if reason else {})
        audit.record(AuditAction.QUOTA_CHANGED, by=by, on=team, team=team, before=old, after={"flavor": flavor, **new})
        doorbell.poke("jobs.schedule")
    return row


def remove_quota(*, by: User | None, team: Team, flavor: str) -> None:
    """Take a team's quota of a flavor away: its queues of that flavor stand by themselves then."""
    _decides(by)
    row = TeamQuota.objects.filter(team=team, flavor__name=flavor).select_related("cohort").first()
    if row is None:
        raise InvalidInput(Problem("flavor", flavor, f"is none that team {team.name} has a quota of"))
    with transaction.atomic():
        audit.record(AuditAction.QUOTA_REMOVED, by=by, on=team, team=team, before={"flavor": flavor, **described(row)})
        row.delete()
        doorbell.poke("jobs.schedule")


def described(row: TeamQuota) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS[:-1]} | {"cohort": row.cohort.name if row.cohort else None}


def given(team: Team, flavor: Flavor, *, but: Queue | None = None) -> int:
    """Return how much of a team's quota its queues have of their own, or those but one."""
    rows = Queue.objects.filter(team=team, flavor=flavor)
    if but is not None and but.pk:
        rows = rows.exclude(pk=but.pk)
    found = rows.aggregate(slots=Sum("nominal"))
    return int(found["slots"] or 0)


def queue_problem(queue: Queue, flavor: Flavor | None) -> Problem | None:
    """Return why a queue as it is to be cannot have a flavor."""
    if flavor is None:
        return None
    for name in ("cluster", "resource", "gpus_per_node"):
        if (has := getattr(queue, name)) != (wants := getattr(flavor, name)):
            words = f"is of {name} {wants}, and the queue has {has}; choose a flavor that is like the queue"
            return Problem("flavor", flavor.name, words)
    quota = TeamQuota.objects.filter(team=queue.team_id, flavor=flavor).first()
    if quota is None:
        words = f"is none that team {queue.team.name} has a quota of; a platform administrator can give it one"
        return Problem("flavor", flavor.name, words)
    others = given(queue.team, flavor, but=queue)
    if queue.nominal > (left := max(0, quota.nominal - others)):
        words = (
            f"is more than team {queue.team.name} has left of flavor {flavor.name}: {quota.nominal} in all, {others} of them in "
            f"other queues, so at most {left} here; a platform administrator can give the team more"
        )
        return Problem("slots", queue.nominal, words)
    return None


def flavor_named(name: str) -> Flavor:
    if (row := Flavor.objects.filter(name=name).first()) is None:
        known = sorted(Flavor.objects.values_list("name", flat=True))
        raise InvalidInput(Problem("flavor", name, f"is no flavor; known are {listed(known, SHOWN) or 'none'}"))
    return row


def cohort_named(name: str) -> Cohort:
    if (row := Cohort.objects.filter(name=name).first()) is None:
        known = sorted(Cohort.objects.values_list("name", flat=True))
        raise InvalidInput(Problem("cohort", name, f"is no cohort; known are {listed(known, SHOWN) or 'none'}"))
    return row


def quota_problems(values: Mapping[str, Any]) -> list[Problem]:
    """Return everything that is wrong with these fields of a quota."""
    found = [
        Problem(name, values[name], f"cannot be set; these can: {', '.join(FIELDS)}")
        for name in sorted(set(values) - set(FIELDS))
    ]
    for name in ("nominal", "borrowing_limit", "lending_limit"):
        if name in values and (values[name] is not None or name == "nominal"):
            found += _whole(
                name, values[name], MOST, "in devices, without a unit" if name == "nominal" else "null for no limit"
            )
    weight = values.get("weight", 1.0)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
    if not is_number or not 0 < weight <= MOST_WEIGHT:
        found.append(Problem("weight", weight, f"must be a number above 0, at most {MOST_WEIGHT:.0f}; 1 is usual"))
    return found


def _decides(by: User | None) -> None:
    if by is not None:
        require_platform_admin(by, "set flavors, cohorts and the quotas of teams")


def _name_problems(name: str) -> list[Problem]:
    return [] if NAME.fullmatch(name) else [Problem("name", name, "must be 1 to 40 letters, digits, - and _")]


def _whole(name: str, value: Any, most: int, way_out: str) -> list[Problem]:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        return [Problem(name, value, f"must be a whole number from 0 to {most}; {way_out}")]
    return []


def _selector_problems(selector: Any) -> list[Problem]:
    """Return what is wrong with the labels that choose a flavor's nodes."""
    example = (
        "node_selector maps labels of nodes to their values, such as nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3"
    )
    if not isinstance(selector, Mapping) or len(selector) > MOST_LABELS:
        return [Problem("node_selector", None, f"must be a mapping of at most {MOST_LABELS} labels: {example}")]
    return [
        Problem(
            f"node_selector.{key}", value if isinstance(value, str) else None, f"is no label with a value; {example}"
        )
        for key, value in selector.items()
        if not (
            isinstance(key, str) and LABEL.fullmatch(key) and isinstance(value, str) and LABEL_VALUE.fullmatch(value)
        )
    ]


def _other(name: str, wanted: Mapping[str, Any]) -> str:
    return Flavor.objects.filter(**wanted).exclude(name=name).values_list("name", flat=True).first() or ""


def _loop(name: str, above: Cohort, every: Mapping[str, Cohort]) -> str:
    """Say why a cohort cannot lie below another one; empty if it can."""
    by_id = {one.pk: one for one in every.values()}
    path, one = [above.name], above
    while one.parent_id is not None:
        one = by_id[one.parent_id]
        path.append(one.name)
    if name in path:
        return f"lies in cohort {name} itself ({' in '.join(path)}); choose another one"
    return (
        f"is {len(path)} deep already, and {DEEPEST} is the most; choose one above it" if len(path) >= DEEPEST else ""
    )


def _too_little(row: TeamQuota) -> Problem | None:
    taken = given(row.team, row.flavor)
    if row.nominal >= taken:
        return None
    words = f"is less than the {taken} that queues of team {row.team.name} have of it; lower their slots first"
    return Problem("nominal", row.nominal, words)


def _said(row: TeamQuota) -> str:
    return ", ".join(f"{name} {'none' if value is None else value}" for name, value in described(row).items())
