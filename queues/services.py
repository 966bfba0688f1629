"""Make queues, change their quota and the ceilings of teams: the only writers of these rows. No job is ended by it.

Administrators of a team set the quotas of its queues, up to the ceiling that platform administrators set for the team.
"""

import re
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Sum

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import Act, is_platform_admin, require, require_platform_admin
from common.errors import Conflict, InvalidInput, Problem
from common.signals import doorbell
from common.text import listed

from . import clusters, cohorts, rules, templates
from .admission import Policy
from .models import Ceiling, Queue, QueueVersion, Resource

MOST_SLOTS = rules.MOST_SLOTS
MOST_REASON = 200  # characters
SHOWN = 10  # changes that a refusal names
MOST_GPUS_PER_NODE = 256
NAME = re.compile(r"[-a-zA-Z0-9_]{1,40}")
CHANGEABLE = (
    "slots", "is_open", "drains", "policy", "description", "gpus_per_node", "flavor", "borrowing_limit", "preempts", *rules.NAMES,
)  # fmt: skip
_COLUMN = {"slots": "nominal"}  # the users' name for it -> the schedulers'


def make(
    *, by: User | None, name: str, team: str, cluster: str, slots: int, resource: str = Resource.CPU, **others: Any
) -> Queue:
    """Create a queue for a team.

    `by` None is the server's own command line. Raises InvalidInput, Conflict, NotAllowed.
    """
    if by is not None:
        require_platform_admin(by, "make queues")
    values = {"slots": slots, "policy": Policy.BACKFILL.value, **others}
    owner = Team.objects.filter(name=team).first()
    problems = [*_place_problems(name, team, owner, cluster=cluster, resource=resource), *problems_in(values)]
    if problems or owner is None:
        raise InvalidInput(*problems)
    queue = Queue(name=name, team=owner, cluster=cluster, resource=resource)
    _assign(queue, values)
    if queue.is_open:
        _refuse_open(values)
    try:
        with transaction.atomic():
            _lock(owner)
            if problem := cohorts.queue_problem(queue, queue.flavor):
                raise InvalidInput(problem)
            ceiling = _ceiling(owner, resource)
            queue.save(force_insert=True)
            audit.record(AuditAction.QUEUE_MADE, by=by, on=queue, team=owner, after=described(queue))
            _keep_ceiling(ceiling, total=quota_of(owner, resource), by=by)
    except IntegrityError as error:
        raise Conflict(f"queue {name} already exists; choose another name", "name", name) from error
    return queue


def change(
    *,
    queue: Queue,
    by: User | None,
    reason: str = "",
    defaults: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    version: int | None = None,
    **values: Any,
) -> Queue:
    """Change a queue's quota, whether it is open, its description, or what its pods are (`set_template`).

    `reason` goes to the audit, `version` is what the caller has seen.

    Jobs keep their slots, even beyond a lower quota. Beyond the team's ceiling a platform administrator raises that too;
    for others it is InvalidInput.
    """
    if by is not None:
        require(by, Act.MANAGE, queue.team)
    if problems := [*problems_in(values), *_text_problems("reason", reason)]:
        raise InvalidInput(*problems)
    with transaction.atomic():
        _lock(queue.team)
        if defaults is not None or template is not None:
            set_template(queue=queue, by=by, defaults=defaults, template=template, expected=version)
        row = Queue.objects.select_for_update(of=("self",), no_key=True).select_related("team").get(pk=queue.pk)
        before = described(row)
        _assign(row, values)
        if row.drains and row.is_open:
            _refuse_open(values)
            row.drains = False  # it was opened
        after = described(row)
        changed = [name for name in after if after[name] != before[name]]
        if not changed:
            return row
        if "flavor" in changed and by is not None and not is_platform_admin(by):
            words = "is set by platform administrators: it decides which quota the queue takes from; ask one of them"
            raise InvalidInput(Problem("flavor", after["flavor"], words))
        if {"slots", "flavor", "gpus_per_node"} & set(changed) and (problem := cohorts.queue_problem(row, row.flavor)):
            raise InvalidInput(problem)
        ceiling = _ceiling(row.team, row.resource)
        total = quota_of(row.team, row.resource) - before["slots"] + after["slots"]
        is_beyond = after["slots"] > before["slots"] and _exceeds(ceiling, total)
        if is_beyond and by is not None and not is_platform_admin(by):
            raise InvalidInput(Problem("slots", after["slots"], _beyond(ceiling, row, total)))
        row.save(update_fields=[_COLUMN.get(name, name) for name in changed])
        if {"gpus_per_node", "flavor"} & set(changed):
            templates.advance(row, by=by)
        if "slots" in changed:
            _keep_ceiling(ceiling, total=total if is_beyond else 0, by=by)
        old, new = ({name: columns[name] for name in changed} for columns in (before, after))
        new |= {"reason": reason} if reason else {}
        audit.record(AuditAction.QUEUE_CHANGED, by=by, on=row, team=row.team, before=old, after=new)
        doorbell.poke("jobs.schedule")
    return row


def set_ceiling(*, team: Team, resource: str, slots: int | None, by: User | None, reason: str = "") -> Ceiling:
    """Set how much all queues of a team together may hold of a resource; None: as much as its administrators wish.

    A ceiling below today's quota takes nothing away; it only lets no quota grow.
    """
    if by is not None:
        require_platform_admin(by, "set the ceilings of teams")
    problems = _text_problems("reason", reason)
    if resource not in Resource.values:
        problems.append(Problem("resource", resource, f"must be one of {', '.join(Resource.values)}"))
    if slots is not None:
        problems += _count_problems({"slots": slots}, "slots", MOST_SLOTS, way_out="leave it out for no ceiling")
    if problems:
        raise InvalidInput(*problems)
    with transaction.atomic():
        _lock(team)
        ceiling = _ceiling(team, resource)
        before, ceiling.slots = ceiling.slots, slots
        if before != slots or ceiling.pk is None:
            ceiling.save()
        if before != slots:
            audit.record(AuditAction.CEILING_CHANGED, by=by, on=team, team=team, **_change(ceiling, before, reason))
    return ceiling


def ceilings_of(team: Team) -> dict[str, int | None]:
    """Return the team's ceilings by resource; without one, today's quota of each resource for which the team has queues."""
    found = {resource: quota_of(team, resource) for resource in Resource.values}
    known = dict(Ceiling.objects.filter(team=team).values_list("resource", "slots"))
    return {resource: known.get(resource, quota) for resource, quota in found.items() if quota or resource in known}


def quota_of(team: Team, resource: str) -> int:
    """Return the sum over the quotas of its queues."""
    found = Queue.objects.filter(team=team, resource=resource).aggregate(slots=Sum("nominal"))
    return int(found["slots"] or 0)


def _lock(team: Team) -> None:
    """Lock the team, so that two of its queues cannot both take what is left below the ceiling."""
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def _ceiling(team: Team, resource: str) -> Ceiling:
    """Return the ceiling; where none is kept yet, one at today's quota that is not saved."""
    found = Ceiling.objects.filter(team=team, resource=resource).first()
    return found or Ceiling(team=team, resource=resource, slots=quota_of(team, resource))


def _exceeds(ceiling: Ceiling, total: int) -> bool:
    return ceiling.slots is not None and total > ceiling.slots


def _keep_ceiling(ceiling: Ceiling, *, total: int, by: User | None) -> None:
    """Raise the ceiling to the quotas that are given now, where they are beyond it; save it in any case.

    One that is kept for the first time begins at the quota before.
    """
    before, is_first = ceiling.slots, ceiling.pk is None
    if _exceeds(ceiling, total):
        ceiling.slots = total
    if is_first or ceiling.slots != before:
        ceiling.save()
    if ceiling.slots != before and (before or not is_first):
        team, change = ceiling.team, _change(ceiling, before)
        audit.record(AuditAction.CEILING_CHANGED, by=by, on=team, team=team, **change)


def _change(ceiling: Ceiling, before: int | None, reason: str = "") -> dict[str, dict[str, Any]]:
    note = {"reason": reason} if reason else {}
    return {"before": {ceiling.resource: before}, "after": {ceiling.resource: ceiling.slots, **note}}


def _beyond(ceiling: Ceiling, queue: Queue, total: int) -> str:
    others, words = total - queue.nominal, queue.get_resource_display()
    return (
        f"is beyond the ceiling of team {queue.team.name}: {ceiling.slots} {words} in all its queues, {others} of them in others, "
        f"so at most {max(0, (ceiling.slots or 0) - others)} here; a platform administrator can raise it"
    )


def _text_problems(name: str, text: Any) -> list[Problem]:
    if isinstance(text, str) and len(text) <= MOST_REASON and "\0" not in text:
        return []
    return [Problem(name, text, f"must be text of at most {MOST_REASON} characters")]


def set_template(
    *,
    queue: Queue,
    by: User | None,
    defaults: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    expected: int | None = None,
) -> Queue:
    """Replace what the queue says of its jobs' pods; the caller has checked it. What is None stays as it is.

    Jobs that are already submitted keep what they have. `expected`: the version that the caller began with; raises
    Conflict with what was changed since.
    """
    if by is not None:
        require(by, Act.MANAGE, queue.team)
    with transaction.atomic():
        row = Queue.objects.select_for_update(of=("self",), no_key=True).select_related("team").get(pk=queue.pk)
        before, held = templates.newest(row), templates.content(row)
        # What the template may hold was judged by the one that the caller has read.
        was_judged = template is None or queue.template == row.template
        if not was_judged or (expected is not None and expected != before.number):
            raise _changed_meanwhile(row, expected or before.number - 1, before)
        row.defaults = row.defaults if defaults is None else dict(defaults)
        row.template = row.template if template is None else dict(template)
        changed = [name for name in ("defaults", "template") if getattr(row, name) != held[name]]
        if changed:
            row.save(update_fields=changed)
            after = templates.advance(row, by=by)
            old, new = ({name: one[name] for name in changed} for one in (held, after.content))
            audit.record(AuditAction.QUEUE_CHANGED, by=by, on=row, team=row.team, before=old, after=new)
            doorbell.poke("jobs.check_template", after.pk)
    return row


def _changed_meanwhile(queue: Queue, expected: int, newest: QueueVersion) -> Conflict:
    whose = f" by {newest.created_by.get_username()}" if newest.created_by else ""
    seen = queue.versions.filter(number=expected).first()
    paths = templates.changes(seen.content, newest.content) if seen else []
    what = f": {listed(paths, SHOWN)}" if paths else ""
    words = (
        f"queue {queue.name} was changed{whose} since version {expected}; it is at version {newest.number} now{what}"
    )
    return Conflict(f"{words}. Look at that one, then save again", "version", expected)


def described(queue: Queue) -> dict[str, Any]:
    found = {name: getattr(queue, _COLUMN.get(name, name)) for name in CHANGEABLE}
    return found | {"flavor": queue.flavor.name if queue.flavor else None}


def problems_in(values: Mapping[str, Any]) -> list[Problem]:
    """Return everything that is wrong with these fields of a queue."""
    found = [
        Problem(name, values[name], f"cannot be changed; these can: {', '.join(CHANGEABLE)}")
        for name in sorted(set(values) - set(CHANGEABLE))
    ]
    found += _count_problems(values, "slots", MOST_SLOTS, way_out="to let nothing start, close the queue", least=1)
    found += _count_problems(
        values, "gpus_per_node", MOST_GPUS_PER_NODE, way_out="0 where replicas are not bound to GPU nodes"
    )
    for name in ("is_open", "preempts", "drains"):
        if not isinstance(values.get(name, True), bool):
            found.append(Problem(name, values[name], "must be true or false"))
    if values.get("borrowing_limit") is not None:
        found += _count_problems(values, "borrowing_limit", MOST_SLOTS, way_out="null for no limit")
    if values.get("policy", Policy.STRICT) not in list(Policy):
        found.append(Problem("policy", values["policy"], f"must be one of {', '.join(Policy)}"))
    found += rules.problems_in(values)
    found += _text_problems("description", values.get("description", ""))
    return found


def _count_problems(values: Mapping[str, Any], name: str, most: int, *, way_out: str, least: int = 0) -> list[Problem]:
    if name not in values:
        return []
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return [Problem(name, value, f"must be a whole number from {least} to {most}; {way_out}")]
    return []


def _place_problems(name: str, team: str, owner: Team | None, *, cluster: str, resource: str) -> list[Problem]:
    found = []
    if not NAME.fullmatch(name):
        found.append(Problem("name", name, "must be 1 to 40 letters, digits, - and _"))
    if owner is None:
        found.append(Problem("team", team, "is not a team; create it first"))
    if not clusters.is_known(cluster):
        found.append(Problem("cluster", cluster, f"must be one of {', '.join(clusters.names())}"))
    if resource not in Resource.values:
        found.append(Problem("resource", resource, f"must be one of {', '.join(Resource.values)}"))
    return found


def _refuse_open(values: Mapping[str, Any]) -> None:
    if values.get("drains"):
        raise InvalidInput(Problem("drains", True, "stops the jobs of a closed queue; set is_open to false with it"))


def _assign(queue: Queue, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if name == "flavor":
            queue.flavor = cohorts.flavor_named(value) if value else None
            continue
        setattr(queue, _COLUMN.get(name, name), value)
