"""The versions of what a queue says of its jobs' pods.

The queue's own columns are what holds; a version is the record of them, made with each change, and for columns that
another release changed when a job is submitted with them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from accounts.models import User

from .models import Queue, QueueVersion


def content(queue: Queue) -> dict[str, Any]:
    """Return what a queue says of its jobs' pods; the selector of its flavor only where that has one."""
    found = {"defaults": queue.defaults, "template": queue.template, "gpus_per_node": queue.gpus_per_node}
    selector = queue.flavor.node_selector if queue.flavor_id is not None and queue.flavor else {}
    return {**found, "node_selector": selector} if selector else found


def version(queue: Queue, *, by: User | None = None) -> QueueVersion:
    """Return the newest version with the content of this queue, as it was read; it is made where there is none."""
    wanted = content(queue)
    known = QueueVersion.objects.filter(queue=queue, digest=_digest(wanted)).order_by("-number")
    return known.first() or _add(queue, wanted, by=by)


def newest(queue: Queue) -> QueueVersion:
    """Return the version with the highest number; of a queue that has none yet, its first."""
    return QueueVersion.objects.filter(queue=queue).order_by("-number").first() or version(queue)


def history(queue: Queue, *, most: int) -> list[tuple[QueueVersion, list[str]]]:
    """Return the newest versions, each with the paths in which it differs from the one before it."""
    rows = list(QueueVersion.objects.filter(queue=queue).select_related("created_by").order_by("-number")[: most + 1])
    pairs = zip(rows, [*rows[1:], None], strict=True) if rows else ()
    return [(row, changes(before.content, row.content) if before else []) for row, before in pairs][:most]


def advance(queue: Queue, *, by: User | None) -> QueueVersion:
    """Make a version of a queue that was changed just now, within its lock; also for a content that it had before."""
    last, wanted = newest(queue), content(queue)
    return last if last.content == wanted else _add(queue, wanted, by=by)


def _add(queue: Queue, wanted: dict[str, Any], *, by: User | None) -> QueueVersion:
    while True:
        last = QueueVersion.objects.filter(queue=queue).aggregate(last=Max("number"))["last"] or 0
        try:
            with transaction.atomic():
                return QueueVersion.objects.create(
                    queue=queue, number=last + 1, content=wanted, digest=_digest(wanted), created_by=by
                )
        except IntegrityError:  # another process made this number
            continue


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def checked_before(version: QueueVersion) -> "QueueVersion | None":
    """Return an earlier version of the same content that the cluster has answered about."""
    same = QueueVersion.objects.filter(
        queue=version.queue_id, digest=version.digest, check_state__in=("valid", "invalid")
    )
    return same.order_by("-number").first()


def record_check(version: QueueVersion, *, state: str, words: str) -> None:
    QueueVersion.objects.filter(pk=version.pk).update(check_state=state, check_words=words)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what differs between two contents, as paths such as `defaults.image` or `pods.sidecars.0.image`."""

    def flat(given: Mapping[str, Any]) -> dict[str, Any]:
        parts = {"gpus_per_node": given.get("gpus_per_node"), **given.get("template", {})}
        parts |= {"node_selector": given["node_selector"]} if given.get("node_selector") else {}
        return dict(_leaves({"defaults": given.get("defaults", {}), **parts}, ""))

    old, new = flat(before), flat(after)
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list) and value:
        for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(one, f"{path}.{key}" if path else str(key))
    elif value not in ({}, [], None):
        yield path, value
