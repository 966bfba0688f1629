"""Look at a cluster: whether it has what Muster needs, and who can mend what it lacks."""

from collections.abc import Iterator
from typing import Any

from django.db import DatabaseError

from common.errors import ClusterError
from common.text import listed
from jobs import clusters
from jobs.clusters import Inspected, Inspects
from queues import clusters as entries
from queues import namespaces
from queues.models import Queue

SETTING = "its entry of MUSTER_CLUSTERS (docs/kubernetes.md)"
ADMINISTRATOR = "an administrator of Muster"
MOST_NAMESPACES = 8  # of teams; each takes a request


def described(alias: str) -> dict[str, Any]:
    """Return what is known of a cluster without asking it."""
    names = Queue.objects.filter(cluster=alias).order_by("name").values_list("name", flat=True)
    makes_pods = clusters.backend(alias).MAKES_PODS
    try:
        namespace = clusters.namespace_of(alias) if makes_pods else ""
    except Exception:  # wrong options, which `inspect` tells
        namespace = ""
    entry = entries.find(alias)
    added = entry if entry and entry.is_added else None
    return {
        "name": alias, "makes_pods": makes_pods, "namespace": namespace, "queues": list(names),
        "is_added": added is not None, "server": added.server if added else "",
        "version": added.version if added else 0, "options": dict(added.options) if added else {},
    }  # fmt: skip


def _of_teams(alias: str, cluster: Inspects) -> Iterator[Inspected]:
    """Yield what Muster may not do in namespaces that belong to teams; of many only in some, so that a check stays quick."""
    try:
        rows = namespaces.bound(alias)
    except DatabaseError:  # such as one without tables yet, which `muster-server check` tells
        rows = []
    for row in rows[:MOST_NAMESPACES]:
        yield from (one for one in cluster.inspect_rights(row.namespace) if one.state != "ok")
    if left := rows[MOST_NAMESPACES:]:
        words = f"what Muster may do was not looked at in namespaces of {len(left)} teams: {listed([one.namespace for one in left], 5)}"
        yield Inspected("rights", "note", words)


def inspect(alias: str) -> list[Inspected]:
    """Return a line for each thing that was looked at; one that says why, where it cannot be looked at."""
    try:
        cluster = clusters.get(alias)
        if isinstance(cluster, Inspects):
            return cluster.inspect() + list(_of_teams(alias, cluster))
        room = clusters.room_of(alias)
        words = f"processes of one machine{f', with room for {room.slots} slots' if room else ''}"
        return [Inspected("machine", "ok", words)]
    except ClusterError as error:
        return [Inspected("server", "wrong", str(error), SETTING, ADMINISTRATOR)]
    except Exception as error:  # wrong options end in whatever the adapter meets first
        return [Inspected("server", "wrong", f"{type(error).__name__}: {error}", SETTING, ADMINISTRATOR)]
