"""Which teams run jobs side by side without isolation: those with queues on clusters that are this machine itself."""

from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils.module_loading import import_string

from .models import Queue

NOTICE = (
    "another team also has a queue on this machine, and local jobs of both can read and end each other's. Use Kubernetes for teams "
    "that do not trust each other, or declare their trust with MUSTER_TEAMS_TRUST=1"
)


def shared_clusters() -> list[str]:
    """Return the clusters that do not keep teams apart (`SEPARATES` of their class).

    Empty where the operator declares that the teams trust each other.
    """
    if settings.MUSTER_TEAMS_TRUST:
        return []
    return [alias for alias, one in settings.CLUSTERS.items() if not import_string(one["BACKEND"]).SEPARATES]


def with_others() -> Any:
    """Return an annotation `has_others` for queues, which saves the function `has_others` a query for each."""
    return Exists(Queue.objects.filter(cluster__in=shared_clusters()).exclude(team=OuterRef("team")))


def has_others(queue: Queue) -> bool:
    """Return whether jobs of another team may run where this queue's do."""
    shared = shared_clusters()
    if queue.cluster not in shared:
        return False
    known: bool | None = getattr(queue, "has_others", None)
    return Queue.objects.filter(cluster__in=shared).exclude(team=queue.team_id).exists() if known is None else known
