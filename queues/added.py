"""The rows of clusters that administrators added. That each leads to a cluster was tried before (jobs/submission/cluster_entries.py)."""

from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import User
from common.errors import Conflict

from . import clusters
from .models import AddedCluster, AllowedObject, ExcludedNode, TeamNamespace


def add(row: AddedCluster, *, by: User | None) -> None:
    """Store a new one. Raises Conflict where another of its name came first."""
    row.created_by = row.changed_by = by
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            audit.record(AuditAction.CLUSTER_ADDED, by=by, on=row, after=_described(row))
    except IntegrityError as error:
        raise Conflict(f"cluster {row.name} was added by somebody else meanwhile") from error
    clusters.forget()


def change(row: AddedCluster, *, by: User | None, version: int, **values: Any) -> AddedCluster:
    """Store new values of its fields. Raises Conflict where it is not of that version any more, or was removed."""
    with transaction.atomic():
        before = (
            AddedCluster.objects.select_for_update(of=("self",)).select_related("changed_by").filter(pk=row.pk).first()
        )
        if before is None:
            raise Conflict(f"cluster {row.name} was removed meanwhile")
        need_version(before, version)
        told = _described(before)
        for name, value in values.items():
            setattr(before, name, value)
        before.version, before.changed_at, before.changed_by = version + 1, timezone.now(), by
        before.save()
        after = _described(before) | ({"credentials": "replaced"} if "sealed" in values else {})
        audit.record(AuditAction.CLUSTER_CHANGED, by=by, on=before, before=told, after=after)
    clusters.forget()
    return before


def remove(row: AddedCluster, *, by: User | None) -> None:
    """Forget one and its credentials. What was decided about it must not hold for another cluster of its name."""
    with transaction.atomic():
        audit.record(AuditAction.CLUSTER_REMOVED, by=by, on=row, before=_described(row))
        if row.name not in settings.CLUSTERS:
            AllowedObject.objects.filter(cluster=row.name).delete()
            ExcludedNode.objects.filter(cluster=row.name).delete()
            TeamNamespace.objects.filter(cluster=row.name).delete()
        row.delete()
    clusters.forget()


def need_version(row: AddedCluster, version: int) -> None:
    """Raise Conflict, with who changed it, where it is not of this version."""
    if row.version == version:
        return
    who = row.changed_by.get_username() if row.changed_by else "somebody"
    raise Conflict(
        f"cluster {row.name} was changed by {who} at {row.changed_at:%H:%M} UTC, and is version {row.version} by now, "
        f"not {version}; look at it again, then make your change to that"
    )


def _described(row: AddedCluster) -> dict[str, Any]:
    """Return what the audit keeps of it: nothing of its credentials."""
    server = row.server or "the cluster of Muster's own pods"
    return {"server": server, **{name: row.options[name] for name in sorted(row.options)}}
