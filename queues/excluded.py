"""Nodes that new pods of Muster stay away from, because platform administrators excluded them. Those on them go on."""

from datetime import datetime

from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import User
from accounts.permissions import require_platform_admin
from common.errors import Conflict, InvalidInput, Problem

from . import clusters
from .allowed import NAME
from .models import ExcludedNode

MOST = 200  # of a cluster; each is part of every pod's affinity
MOST_REASON = 500  # characters


def names(cluster: str) -> tuple[str, ...]:
    """Return the names of a cluster's excluded nodes, in order."""
    rows = ExcludedNode.objects.filter(cluster=cluster, readmitted_at=None)
    return tuple(rows.order_by("name").values_list("name", flat=True))


def exclude(*, cluster: str, name: str, reason: str, by: User | None) -> ExcludedNode:
    """Keep new pods off a node. Raises NotAllowed, InvalidInput, and Conflict where it is excluded or there are too many."""
    check(cluster=cluster, name=name, reason=reason, by=by)
    with transaction.atomic():
        # Of two administrators at once the second one waits here for the row of the first.
        row, is_new = ExcludedNode.objects.get_or_create(
            cluster=cluster, name=name, readmitted_at=None, defaults={"reason": reason.strip(), "excluded_by": by}
        )
        if not is_new:
            who = row.excluded_by.get_username() if row.excluded_by else "somebody"
            raise Conflict(f"node {name} is excluded already, by {who}: {row.reason}")
        if ExcludedNode.objects.filter(cluster=cluster, readmitted_at=None).count() > MOST:
            raise Conflict(f"{MOST} nodes of cluster {cluster} are excluded, which is the most; readmit one first")
        audit.record(AuditAction.NODE_EXCLUDED, by=by, on=row, after={"cluster": cluster, "reason": row.reason})
    return row


def readmit(*, row: ExcludedNode, by: User | None) -> None:
    """Let new pods on the node again. Idempotent."""
    if by is not None:
        require_platform_admin(by, "readmit nodes")
    with transaction.atomic():
        still = ExcludedNode.objects.filter(pk=row.pk, readmitted_at=None)
        if still.update(readmitted_at=timezone.now(), readmitted_by=by):
            audit.record(
                AuditAction.NODE_READMITTED, by=by, on=row, before={"cluster": row.cluster, "reason": row.reason}
            )


def readmitted() -> dict[tuple[str, str], datetime]:
    """Return when each node that was excluded before was last readmitted, by cluster and name."""
    rows = ExcludedNode.objects.filter(readmitted_at__isnull=False).order_by("readmitted_at")
    return {(cluster, name): at for cluster, name, at in rows.values_list("cluster", "name", "readmitted_at") if at}


def check(*, cluster: str, name: str, reason: str, by: User | None) -> None:
    """Raise NotAllowed, and InvalidInput with every problem."""
    if by is not None:
        require_platform_admin(by, "exclude nodes")
    reason, problems = reason.strip(), []
    if not clusters.is_known(cluster):
        problems.append(Problem("cluster", cluster, f"must be one of {', '.join(clusters.names())}"))
    if not NAME.match(name):
        problems.append(Problem("name", name, "is not the name of a node; use a-z, 0-9, - and ."))
    if not reason:
        problems.append(Problem("reason", None, "is missing; say what is wrong with the node"))
    elif len(reason) > MOST_REASON:
        problems.append(Problem("reason", None, f"has {len(reason)} characters; at most {MOST_REASON} are stored"))
    if problems:
        raise InvalidInput(*problems)
