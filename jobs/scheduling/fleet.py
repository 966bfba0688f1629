"""What nodes a cluster has for the jobs that wait: rows that beat writes once a minute, and where Muster's pods are now.

Where nodes prove nothing (they are not listed, not looked at lately, or an autoscaler adds more) admission goes by quota alone.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from common.errors import InvalidInput
from jobs import clusters
from jobs.analysis import cluster_nodes
from jobs.core import pod_fields
from jobs.core.lifecycle import Phase
from jobs.core.verdict import NO_PLACE, ReplicaState, RoleView
from jobs.models import ClusterNode, Job, Replica
from queues import admission, excluded
from queues.admission import FleetState, Gang
from queues.models import Queue, Resource
from queues.trees import Sharing

from .snapshot import Snapshot

FRESH = timedelta(minutes=3)  # beyond that a look at the nodes is too old
PROVES = timedelta(minutes=1)  # that Kubernetes found no node for a pod
_Row = tuple[str, int, int | None, str, bool, Mapping[str, str]]
_SHAPE = ("roles", *pod_fields.NAMES)


def with_fleet(seen: Snapshot, jobs: Iterable[Job], fleet: FleetState | None) -> Snapshot:
    """Return the snapshot of these jobs with the nodes of their cluster."""
    if fleet is None:
        return seen
    by_id = {job.pk or 0: job for job in jobs}
    pending = [
        replace(one, gang=gang_of(by_id[one.job]), shape=_shape(by_id[one.job]) if fleet.refused else "")
        for one in seen.pending
    ]
    return replace(seen, pending=pending, queues=[replace(one, fleet=fleet) for one in seen.queues])


def of_queues(shared: Sharing) -> FleetState | None:
    """Return the nodes of the cluster of queues that share quota; None where these prove nothing."""
    cluster, now = shared.queues[0].cluster, timezone.now()  # of one flavor
    if shared.queues[0].resource != Resource.GPU or not _proves(cluster, now):
        return None
    rows = ClusterNode.objects.filter(cluster=cluster, gone_at=None, gpus__gt=0).order_by()
    flavor = shared.queues[0].flavor
    selector = flavor.node_selector if flavor else {}
    known = list(_selected(rows.values_list("name", "gpus", "others", "silence", "is_cordoned", "levels"), selector))
    if not known:
        return None  # which of what they offer is a GPU is not known
    out = set(excluded.names(cluster))
    placed = _placed(cluster, [name for name, *_ in known], now)
    return FleetState(
        {
            name: max(0, gpus - (others or 0))
            for name, gpus, others, silence, is_cordoned, _ in known
            if not (silence or is_cordoned or name in out)
        },
        placed,
        tuple(_unplaced(cluster, selector, placed)),
        _refused(shared.queues, now),
    )


def gang_of(job: Job) -> Gang:
    """Return the replicas of a job that must find room at once."""
    roles = job.role_views
    return admission.gang((_gpus(job, role, roles), role.least or role.replicas) for role in roles)


def _gpus(job: Job, role: RoleView, roles: Sequence[RoleView]) -> int:
    """Return the GPUs of a role's replica. Releases before `slots` stored a role without it."""
    if role.slots is not None:
        return role.slots
    return job.slots // role.replicas if len(roles) == 1 else role.processes


def _proves(cluster: str, now: datetime) -> bool:
    look = cluster_nodes.look(cluster)
    if look is None or look.problem or look.seen_at is None or now - look.seen_at > FRESH:
        return False
    try:
        return not clusters.adds_nodes(cluster)
    except InvalidInput:  # its entry is wrong, or gone: its pods are nowhere
        return False


def _placed(cluster: str, names: list[str], now: datetime) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for node, held in cluster_nodes.held_on(cluster, now=now, names=names).items():
        for one in held:
            found[one.job][node] = one.slots
    return found


def _selected(rows: Iterable[_Row], selector: Mapping[str, str]) -> Iterator[_Row]:
    """Yield the nodes with these labels. A label that was seen of no node may be one that was not looked at yet."""
    nodes = list(rows)
    seen = {label for *_, labels in nodes for label in labels}
    wanted = {label: value for label, value in selector.items() if label in seen}
    return (one for one in nodes if all(one[-1].get(label) == value for label, value in wanted.items()))


def _unplaced(
    cluster: str, selector: Mapping[str, str], placed: Mapping[int, Mapping[str, int]]
) -> Iterable[tuple[int, Gang]]:
    """Yield what jobs that begin will take of nodes with these labels, beside what they have already."""
    begin = Job.objects.filter(phase__in=[Phase.ADMITTED, Phase.STARTING], queue__cluster=cluster)
    begin = begin.filter(queue__resource=Resource.GPU).order_by("pk").only("pk", "slots", "roles", "spec")
    same = Q(queue__flavor__node_selector=selector)
    begin = begin.filter(same if selector else same | Q(queue__flavor=None))
    for job in begin:
        has = sum(placed.get(job.pk, {}).values())
        left = Counter[int]()
        for gpus, count in gang_of(job):
            there = min(count, has // gpus)
            has -= there * gpus
            left[gpus] += count - there
        if rest := admission.gang(left.items()):
            yield job.pk, rest


def _refused(queues: Collection[Queue], now: datetime) -> dict[str, tuple[int, int]]:
    """Return the shapes of pods for which Kubernetes just found no node, with the least GPUs of such a pod, and its job."""
    rows = Replica.objects.filter(
        job__queue__in=queues, job__phase=Phase.STARTING, state=ReplicaState.PENDING, node="", ended_at=None, closed_at=None,
        reason__startswith=NO_PLACE, seen_at__gt=now - PROVES,
    )  # fmt: skip
    found = dict[str, tuple[int, int]]()
    for row in rows.select_related("job").order_by("job_id", "role", "index").distinct("job_id", "role"):
        roles = row.job.role_views
        gpus = next((_gpus(row.job, role, roles) for role in roles if role.name == row.role), 0)
        shape = _shape(row.job)
        if gpus and (shape not in found or gpus < found[shape][0]):
            found[shape] = (gpus, row.job_id)
    return found


def _shape(job: Job) -> str:
    """Return what decides beside GPUs where a job's pods may run: its queue, and what it says of its pods."""
    said = {name: job.spec[name] for name in _SHAPE if job.spec.get(name)}
    return f"{job.queue_id} {json.dumps(said, sort_keys=True)}"
