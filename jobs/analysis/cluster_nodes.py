"""Read the nodes of a cluster: their rows, what Muster's pods hold of them, and which of them are excluded or suspect.

A page reads at most the nodes that are stored of a cluster (control/node_rows.py bounds them), and one row for each job on
each of them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q

from accounts.models import User
from accounts.permissions import is_platform_admin
from common.db import sql
from jobs import clusters
from jobs.core.lifecycle import ON_CLUSTER
from jobs.core.node_summary import Held, NodeFacts, Summary
from jobs.core.silence import IDLE_AFTER, SILENT
from jobs.models import AttemptFailure, ClusterLook, ClusterNode, Job, NodeHistory, Replica
from queues import excluded
from queues.allowed import NAME
from queues.readable import readable_clusters

from . import suspects

_OF_ALL = sql.load("jobs/sql/held_on_nodes.sql", job="0::bigint", within="")
_OF_SOME = sql.load("jobs/sql/held_on_nodes.sql", job="t.job", within="AND r.node = ANY(%(nodes)s::text[])")
_SUMS = sql.load("jobs/sql/sums_of_nodes.sql", held=_OF_ALL)
# What a page reads of all nodes; the rest is for those that it shows alone.
_OF_EACH = ("number", "name", "gpus", "product", "silence", "silent_since", "is_cordoned", "others", "troubles")
BY_NUMBER = "~"  # what the number of a node begins with in an address; no name of a node contains it
FAILURES_SINCE = timedelta(days=30)
_PARTS = re.compile(r"(\d+)")


def may_see(user: User, cluster: str) -> bool:
    """Return whether somebody may see the nodes of a cluster: platform administrators, and who may submit to a queue there."""
    if not clusters.is_known(cluster):
        return False
    known = readable_clusters(user)
    return known is None or cluster in known


def shows_names(user: User) -> bool:
    """Return whether nodes are shown to somebody by their names, and not by numbers."""
    return settings.MUSTER_NODE_NAMES == "all" or is_platform_admin(user)


def key(node: NodeFacts | ClusterNode, *, with_names: bool) -> str:
    """Return what stands for a node in an address: its name, or its number where names are not shown or it has an odd one."""
    return node.name if with_names and NAME.match(node.name) else f"{BY_NUMBER}{node.number}"


def shown(node: NodeFacts | ClusterNode, *, with_names: bool) -> str:
    """Return what a node is called for somebody."""
    return node.name if with_names else f"node {node.number}"


def find(cluster: str, key: str, *, with_names: bool) -> ClusterNode | None:
    """Return the row of a node by what stands for it in an address; also of one that is gone."""
    rows = ClusterNode.objects.filter(cluster=cluster)
    if key.startswith(BY_NUMBER):
        digits = key.removeprefix(BY_NUMBER)
        is_number = digits.isascii() and digits.isdecimal() and len(digits) < 10
        return rows.filter(number=int(digits)).first() if is_number else None
    return rows.filter(name=key).first() if with_names else None


def look(cluster: str) -> ClusterLook | None:
    """Return when the cluster's nodes were listed last; None if they never were."""
    return ClusterLook.objects.filter(pk=cluster).first()


def facts(cluster: str, *, now: datetime) -> list[NodeFacts]:
    """Return the nodes that are there, by name. What jobs hold of each is one sum; `with_jobs` says it for some of them."""
    rows = ClusterNode.objects.filter(cluster=cluster, gone_at=None).order_by().values_list(*_OF_EACH)
    held, (out, blamed) = held_on(cluster, now=now), _judged(cluster, now=now)
    found = [
        NodeFacts(
            number, name, gpus, product, silence, silent_since, is_cordoned, name in out, failed_jobs=blamed.get(name, 0),
            others=others, troubles=tuple(troubles), held=tuple(held.get(name, ())),
        )
        for number, name, gpus, product, silence, silent_since, is_cordoned, others, troubles in rows
    ]  # fmt: skip
    return sorted(found, key=lambda one: _natural(one.name))


def sums(cluster: str, *, now: datetime) -> Summary | None:
    """Return the nodes that are there in numbers, without groups and what is wrong with some; None where none are known."""
    given = {**_given(cluster, now), "out": list(excluded.names(cluster))}
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, given)
        nodes, gpus, held, idle, broken, others, free, largest, with_free, out, away = cursor.fetchone()
    if not nodes:
        return None
    return Summary(
        nodes, gpus, held, others, idle, broken, out, free, largest, nodes_with_free=with_free, nodes_away=away
    )


def with_jobs(cluster: str, nodes: Iterable[NodeFacts], *, now: datetime) -> list[NodeFacts]:
    """Return these nodes with what each job holds of them."""
    found = list(nodes)
    held = held_on(cluster, now=now, names=[one.name for one in found])
    return [replace(one, held=tuple(held.get(one.name, ()))) for one in found]


def of_rows(cluster: str, rows: Iterable[ClusterNode], *, now: datetime) -> list[NodeFacts]:
    """Return all that is known of these nodes, in their order."""
    out, blamed = _judged(cluster, now=now)
    found = [
        NodeFacts(
            row.number, row.name, row.gpus, row.product, row.silence, row.silent_since, row.is_cordoned, row.name in out,
            is_gone=row.gone_at is not None, failed_jobs=blamed.get(row.name, 0), others=row.others,
            troubles=tuple(row.troubles), taints=tuple(row.taints), levels=tuple(sorted(row.levels.items())),
        )
        for row in rows
    ]  # fmt: skip
    return with_jobs(cluster, found, now=now)


def _judged(cluster: str, *, now: datetime) -> tuple[set[str], dict[str, int]]:
    """Return the nodes that are excluded, and how many jobs those failed that are suspect."""
    return set(excluded.names(cluster)), {one.name: one.jobs for one in suspects.suspects(now, clusters=[cluster])}


def _natural(name: str) -> list[Any]:
    """Return what sorts node-2 before node-10."""
    return [(0, int(part[:18]), "") if part.isdecimal() else (1, 0, part) for part in _PARTS.split(name)]


def _given(cluster: str, now: datetime) -> dict[str, Any]:
    return {"cluster": cluster, "phases": sorted(ON_CLUSTER), "still": now - IDLE_AFTER, "heard": now - SILENT}


def held_on(cluster: str, *, now: datetime, names: list[str] | None = None) -> Mapping[str, list[Held]]:
    """Return what Muster's pods hold, by node: of the named ones each job, in order; of all nodes the sum of their jobs."""
    given = {**_given(cluster, now), "nodes": names}
    found: dict[str, list[Held]] = defaultdict(list)
    with connection.cursor() as cursor:
        if names is None:
            cursor.execute(_OF_ALL, given)
        else:
            cursor.execute(_OF_SOME, given)
        for node, *held in sorted(cursor.fetchall()):
            found[node].append(Held(*held))
    return found


@dataclass(frozen=True)
class JobName:
    """What is said of a job beside a node."""

    pk: int
    name: str
    team: str

    @property
    def url(self) -> str:
        return f"/jobs/{self.pk}"


@dataclass(frozen=True)
class JobOnNode:
    """What a job holds of a node. `job` is None for all those that the reader may not see."""

    job: JobName | None
    slots: int
    replicas: int = 1
    idle: int = 0
    broken: int = 0


def readable_jobs(user: User, nodes: Iterable[NodeFacts]) -> Mapping[int, JobName]:
    """Return those jobs on these nodes that somebody may see, by id."""
    ids = {one.job for node in nodes for one in node.held}
    found = Job.objects.readable_by(user).filter(pk__in=ids).order_by()
    return {pk: JobName(pk, name, team) for pk, name, team in found.values_list("pk", "name", "team__name")}


def jobs_on(facts: NodeFacts, jobs: Mapping[int, JobName]) -> list[JobOnNode]:
    """Return what each of these jobs holds of a node; all others together are the last one."""
    mine = [
        JobOnNode(jobs[one.job], one.slots, one.replicas, one.idle, one.broken) for one in facts.held if one.job in jobs
    ]
    others = [one for one in facts.held if one.job not in jobs]
    if others:
        slots, replicas, idle, broken = map(
            sum, zip(*((one.slots, one.replicas, one.idle, one.broken) for one in others), strict=True)
        )
        mine.append(JobOnNode(None, slots, replicas, idle, broken))
    return mine


def history(row: ClusterNode, *, most: int) -> list[NodeHistory]:
    """Return the newest changes of a node, newest first."""
    return list(NodeHistory.objects.filter(node=row).order_by("-id")[:most])


def failures(row: ClusterNode, *, now: datetime, most: int) -> list[AttemptFailure]:
    """Return the newest verdicts of a month that blame a node."""
    found = AttemptFailure.objects.filter(node=row.name, judged_at__gt=now - FAILURES_SINCE)
    found = found.filter(Q(launch__cluster=row.cluster) | Q(launch=None, job__queue__cluster=row.cluster))
    return list(found.select_related("job__team").defer("traceback", "last_lines").order_by("-judged_at", "-id")[:most])


def replicas(row: ClusterNode, *, teams: Iterable[int] | None, most: int) -> list[Replica]:
    """Return the newest replicas of these teams' jobs that ran there or still do; `teams` None means all of them."""
    found = Replica.objects.filter(node=row.name, job__queue__cluster=row.cluster)
    if teams is not None:
        found = found.filter(job__team__in=list(teams))
    return list(
        found.select_related("job__team").defer("lines_before", "unexpected_ranks", "nodes").order_by("-id")[:most]
    )
