"""Make queues and change their quota: the only writers of a queue's row. Running jobs are never ended by it."""

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import Team, User
from accounts.permissions import Act, require, require_platform_admin
from common import doorbell
from common.errors import Conflict, InvalidInput, Problem

from .models import Queue, Resource

MOST_SLOTS = 1_000_000
MOST_GPUS_PER_NODE = 256
NAME = re.compile(r"[-a-zA-Z0-9_]{1,40}")
CHANGEABLE = ("slots", "is_open", "description", "gpus_per_node")
_COLUMN = {"slots": "nominal"}  # the users' name for it -> the schedulers'


def make(
    *, by: User | None, name: str, team: str, cluster: str, slots: int, resource: str = Resource.CPU, **others: Any
) -> Queue:
    """Create a queue for a team.

    `by` None is the server's own command line. Raises InvalidInput, Conflict, NotAllowed.
    """
    if by is not None:
        require_platform_admin(by, "make queues")
    values = {"slots": slots, **others}
    owner = Team.objects.filter(name=team).first()
    problems = [*_place_problems(name, team, owner, cluster, resource), *problems_in(values)]
    if problems or owner is None:
        raise InvalidInput(*problems)
    queue = Queue(name=name, team=owner, cluster=cluster, resource=resource)
    _assign(queue, values)
    try:
        with transaction.atomic():
            queue.save(force_insert=True)
            audit.record(AuditAction.QUEUE_MADE, by=by, on=queue, team=owner, after=described(queue))
    except IntegrityError as error:
        raise Conflict(f"queue {name} already exists; choose another name", "name", name) from error
    return queue


def change(*, queue: Queue, by: User | None, **values: Any) -> Queue:
    """Change a queue's quota, whether it is open, or its description.

    Jobs keep their slots, even beyond a lower quota.
    """
    if by is not None:
        require(by, Act.MANAGE, queue.team)
    if problems := problems_in(values):
        raise InvalidInput(*problems)
    with transaction.atomic():
        row = Queue.objects.select_for_update(of=("self",), no_key=True).select_related("team").get(pk=queue.pk)
        before = described(row)
        _assign(row, values)
        after = described(row)
        changed = [name for name in after if after[name] != before[name]]
        if not changed:
            return row
        row.save(update_fields=[_COLUMN.get(name, name) for name in changed])
        old, new = ({name: told[name] for name in changed} for told in (before, after))
        audit.record(AuditAction.QUEUE_CHANGED, by=by, on=row, team=row.team, before=old, after=new)
        doorbell.poke("jobs.schedule")
    return row


def set_defaults(*, queue: Queue, by: User | None, defaults: Mapping[str, Any]) -> Queue:
    """Replace the fields that the queue's jobs have unless they say otherwise; the caller has checked them.

    Jobs that are already submitted keep what they have.
    """
    if by is not None:
        require(by, Act.MANAGE, queue.team)
    with transaction.atomic():
        row = Queue.objects.select_for_update(of=("self",), no_key=True).select_related("team").get(pk=queue.pk)
        before, row.defaults = row.defaults, dict(defaults)
        if row.defaults != before:
            row.save(update_fields=["defaults"])
            old, new = {"defaults": before}, {"defaults": row.defaults}
            audit.record(AuditAction.QUEUE_CHANGED, by=by, on=row, team=row.team, before=old, after=new)
    return row


def described(queue: Queue) -> dict[str, Any]:
    return {name: getattr(queue, _COLUMN.get(name, name)) for name in CHANGEABLE}


def problems_in(values: Mapping[str, Any]) -> list[Problem]:
    """Return everything that is wrong with these fields of a queue."""
    found = [
        Problem(name, values[name], f"cannot be changed; these can: {', '.join(CHANGEABLE)}")
        for name in sorted(set(values) - set(CHANGEABLE))
    ]
    found += _count_problems(values, "slots", MOST_SLOTS, "to let nothing start, close the queue", least=1)
    found += _count_problems(values, "gpus_per_node", MOST_GPUS_PER_NODE, "0 where replicas are not bound to GPU nodes")
    if not isinstance(values.get("is_open", True), bool):
        found.append(Problem("is_open", values["is_open"], "must be true or false"))
    text = values.get("description", "")
    if not isinstance(text, str) or len(text) > 200 or "\0" in text:
        found.append(Problem("description", text, "must be text of at most 200 characters"))
    return found


def _count_problems(values: Mapping[str, Any], name: str, most: int, way_out: str, least: int = 0) -> list[Problem]:
    if name not in values:
        return []
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return [Problem(name, value, f"must be a whole number from {least} to {most}; {way_out}")]
    return []


def _place_problems(name: str, team: str, owner: Team | None, cluster: str, resource: str) -> list[Problem]:
    found = []
    if not NAME.fullmatch(name):
        found.append(Problem("name", name, "must be 1 to 40 letters, digits, - and _"))
    if owner is None:
        found.append(Problem("team", team, "is not a team; create it first"))
    if cluster not in settings.CLUSTERS:
        found.append(Problem("cluster", cluster, f"must be one of {', '.join(settings.CLUSTERS)}"))
    if resource not in Resource.values:
        found.append(Problem("resource", resource, f"must be one of {', '.join(Resource.values)}"))
    return found


def _assign(queue: Queue, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(queue, _COLUMN.get(name, name), value)
