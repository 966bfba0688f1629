"""Write down what nodes the clusters have, and how each changed since the last look. Repeated by beat.

Of nodes that did not change nothing is written but the time of the look.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.db import connection
from django.utils import timezone

from common import faultpoints
from common.db import sql
from common.errors import ClusterError, InvalidInput
from jobs import clusters
from jobs.clusters import ListsNodes
from jobs.core.node_seen import MOST_NAME, MOST_TEXTS, MOST_WORDS, ChangeKind, NodeChange, NodeSeen, changes
from jobs.models import ClusterLook, ClusterNode, NodeHistory
from queues.models import Flavor, Queue

log = logging.getLogger(__name__)
MOST_NODES = 5000  # of a cluster; further ones are left out, and the page says so
KEPT = timedelta(days=30)  # changes, and nodes that are gone
MOST_CHANGES = 200  # of a node
NO_RIGHT = "Muster's account may not see nodes (deploy/nodes.yaml)"
_WRITTEN = (
    "gone_at", "silence", "silent_since", "is_cordoned", "devices", "gpus", "others", "product", "levels", "taints", "troubles",
)  # fmt: skip
_TRIM = sql.load("jobs/sql/trim_node_history.sql")


def write_all() -> int:
    """Look at every cluster that lists its nodes. Return how many rows of nodes were written."""
    found = 0
    for alias in clusters.names():
        try:
            found += write(alias)
        except Exception:  # the others go on; wrong options end in whatever the adapter meets first
            log.exception("the nodes of cluster %s are not written", alias)
    return found


def write(alias: str) -> int:
    """Look at one cluster, and return how many rows of its nodes were written."""
    if not hasattr(clusters.backend(alias), "list_nodes"):  # asked of the class: no client is made
        return 0
    asked_at, problem = timezone.now(), ""
    seen: list[NodeSeen] | None = None
    try:
        cluster = clusters.get(alias)
        with faultpoints.around("nodes.ask"):
            seen = cluster.list_nodes() if isinstance(cluster, ListsNodes) else None
        problem = NO_RIGHT if seen is None else ""
    except (ClusterError, InvalidInput) as error:
        problem = str(error)[:MOST_WORDS]
    with faultpoints.atomic("nodes.record"):
        look, _ = ClusterLook.objects.select_for_update().get_or_create(cluster=alias)
        if look.asked_at is not None and look.asked_at >= asked_at:
            return 0  # another process looked later, and was first
        if seen is not None and len(seen) > MOST_NODES:
            problem = f"it has {len(seen):,} nodes; the first {MOST_NODES:,} are shown"
        known = {"seen_at": asked_at} if seen is not None else {}
        ClusterLook.objects.filter(pk=alias).update(asked_at=asked_at, problem=problem, **known)
        return 0 if seen is None else _record(alias, seen[:MOST_NODES], now=asked_at)


def _record(alias: str, seen: Sequence[NodeSeen], *, now: datetime) -> int:
    """Write the rows that changed, with one statement for all of them and one for their changes."""
    before = {row.name: row for row in ClusterNode.objects.filter(cluster=alias)}
    levels, numbers = _levels(alias), count(max((row.number for row in before.values()), default=0) + 1)
    rows, notes = list[ClusterNode](), list[tuple[str, NodeChange]]()
    now_there = {_bounded(one).name: _bounded(one) for one in seen if one.name}
    for name, one in now_there.items():
        row = before.get(name)
        known = None if row is None or row.gone_at is not None else _seen(row)
        values = _values(one, row, levels=levels, now=now)
        if row is None or any(getattr(row, field) != value for field, value in values.items()):
            number = next(numbers) if row is None else row.number
            first = now if row is None else row.first_seen_at
            rows.append(
                ClusterNode(cluster=alias, name=name, number=number, first_seen_at=first, changed_at=now, **values)
            )
            notes += [(name, change) for change in changes(known, one)]
    missing = [row for name, row in before.items() if name not in now_there and row.gone_at is None]
    for row in missing:
        row.gone_at = row.changed_at = now
    notes += [(row.name, NodeChange(ChangeKind.GONE)) for row in missing]
    _save([*rows, *missing])
    _note(alias, notes, at=now)
    return len(rows) + len(missing)


def _save(rows: Iterable[ClusterNode]) -> None:
    made = [
        ClusterNode(**{field: getattr(row, field) for field in ("cluster", "name", "number", "first_seen_at", "changed_at", *_WRITTEN)})
        for row in rows
    ]  # fmt: skip
    ClusterNode.objects.bulk_create(
        made, update_conflicts=True, unique_fields=["cluster", "name"], update_fields=["changed_at", *_WRITTEN]
    )


def _note(alias: str, notes: Sequence[tuple[str, NodeChange]], *, at: datetime) -> None:
    if not notes:
        return
    names = {name for name, _ in notes}
    ids = dict(ClusterNode.objects.filter(cluster=alias, name__in=names).values_list("name", "pk"))
    NodeHistory.objects.bulk_create(
        NodeHistory(node_id=ids[name], at=at, kind=change.kind, words=change.words) for name, change in notes
    )
    with connection.cursor() as cursor:
        cursor.execute(_TRIM, {"nodes": sorted(ids.values()), "most": MOST_CHANGES})


def _levels(alias: str) -> frozenset[str]:
    """Return the labels that templates of the cluster's queues name as levels of its topology, and by which flavors choose nodes."""
    named = Queue.objects.filter(cluster=alias, template__has_key="topology").values_list(
        "template__topology", flat=True
    )
    selectors = Flavor.objects.filter(cluster=alias).exclude(node_selector={}).values_list("node_selector", flat=True)
    levels = {label for one in named if isinstance(one, Mapping) for label in one.values()}
    return frozenset(levels.union(*selectors))


def _values(one: NodeSeen, row: ClusterNode | None, *, levels: frozenset[str], now: datetime) -> dict[str, Any]:
    since = None if not one.silence else (row.silent_since if row and row.silent_since else now)
    return {
        "gone_at": None, "silence": one.silence, "silent_since": since, "is_cordoned": one.is_cordoned,
        "devices": dict(one.devices), "gpus": one.gpus, "others": one.others, "product": one.product,
        # its own name is no level, and is shown to those only who may see it
        "levels": {label: said for label in sorted(levels) if (said := one.labels.get(label)) and said != one.name},
        "taints": list(one.taints), "troubles": list(one.troubles),
    }  # fmt: skip


def _seen(row: ClusterNode) -> NodeSeen:
    """Return the node as the row has it."""
    return NodeSeen(
        row.name, row.silence, row.is_cordoned, row.devices, taints=tuple(row.taints), troubles=tuple(row.troubles)
    )


def _bounded(one: NodeSeen) -> NodeSeen:
    """Return what fits into a row: a cluster outside of this repository may say anything."""
    return NodeSeen(
        one.name[:MOST_NAME], one.silence[:MOST_WORDS], one.is_cordoned, one.devices, one.product[:100], one.labels,
        tuple(text[:MOST_WORDS] for text in one.taints[:MOST_TEXTS]),
        tuple(text[:MOST_WORDS] for text in one.troubles[:MOST_TEXTS]), one.others,
    )  # fmt: skip


def forget(*, now: datetime) -> int:
    """Delete changes that are older than a month, and nodes that are gone for so long. Return how many rows."""
    with faultpoints.around("nodes.forget"):
        changes_gone, _ = NodeHistory.objects.filter(at__lt=now - KEPT).delete()
    with faultpoints.around("nodes.forget"):
        nodes_gone, _ = ClusterNode.objects.filter(gone_at__lt=now - KEPT).delete()
    return changes_gone + nodes_gone
