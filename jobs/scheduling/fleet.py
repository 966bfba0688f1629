"""What nodes a cluster has for the jobs that wait: rows that beat writes once a minute, and where Muster's pods are now.

Where nodes prove nothing (they are not listed, not looked at lately, or an autoscaler adds more) admission goes by quota alone.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from common.errors import ClusterError, InvalidInput
from jobs import clusters
from jobs.analysis import cluster_nodes
from jobs.core import pod_fields
from jobs.core.lifecycle import Phase, StopReason
from jobs.core.verdict import NO_PLACE, ReplicaState, RoleView
from jobs.models import ClusterNode, Job, Replica
from queues import admission, excluded
from queues.admission import FleetState, Gang
from queues.models import Queue, Resource
from queues.trees import Sharing

from .snapshot import Snapshot

FRESH = timedelta(minutes=3)  # beyond that a look at the nodes is too old
BACK_SOON = timedelta(minutes=10)  # a node that does not answer for less than that is one that there is
_Row = tuple[str, int, int | None, datetime | None, bool, Mapping[str, int], Mapping[str, str]]
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
    every = list(rows.values_list("name", "gpus", "others", "silent_since", "is_cordoned", "devices", "levels"))
    offered = {device for *_, devices, _ in every for device in devices}
    if not every or any((device := _device(queue)) and device not in offered for queue in shared.queues):
        return None  # what its jobs take of the nodes is not counted
    known, out = _selected(every, selector), set(excluded.names(cluster))
    placed = _placed(cluster, [name for name, *_ in every], now)
    there = [one for one in known if not (one[4] or one[0] in out)]
    return FleetState(
        {name: max(0, gpus - (others or 0)) for name, gpus, others, silent_since, *_ in there if silent_since is None},
        placed,
        tuple(_unplaced(cluster, selector, placed)),
        _refused(shared.queues),
        {
            name: gpus
            for name, gpus, _, silent_since, *_ in there
            if silent_since is None or now - silent_since < BACK_SOON
        },
    )


def _device(queue: Queue) -> str:
    """Return the device that a queue's template names; empty for the usual one of its cluster."""
    return str(queue.template.get("node", {}).get("resource", ""))


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
    except (ClusterError, InvalidInput):  # its entry is wrong, or gone: its pods are nowhere
        return False


def _placed(cluster: str, names: list[str], now: datetime) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for node, held in cluster_nodes.held_on(cluster, now=now, names=names).items():
        for one in held:
            found[one.job][node] = one.slots
    return found


def _selected(nodes: Sequence[_Row], selector: Mapping[str, str]) -> list[_Row]:
    """Return the nodes with these labels. A label that was seen of no node may be one that was not looked at yet."""
    seen = {label for *_, labels in nodes for label in labels}
    wanted = {label: value for label, value in selector.items() if label in seen}
    return [one for one in nodes if all(one[-1].get(label) == value for label, value in wanted.items())]


def _unplaced(
    cluster: str, selector: Mapping[str, str], placed: Mapping[int, Mapping[str, int]]
) -> Iterable[tuple[int, Gang]]:
    """Yield what jobs that begin, or begin anew, will take of nodes with these labels, beside what they have already."""
    nowhere = Replica.objects.filter(
        job=OuterRef("pk"), attempt=OuterRef("attempt"), node="", ended_at=None, closed_at=None
    )
    begins = Q(phase__in=[Phase.ADMITTED, Phase.STARTING]) | Q(phase=Phase.STOPPING, stop_reason=StopReason.RETRY)
    begin = Job.objects.filter(begins | (Q(phase=Phase.RUNNING) & Exists(nowhere)), queue__cluster=cluster)
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


def _refused(queues: Collection[Queue]) -> dict[str, tuple[int, int]]:
    """Return the shapes of pods for which Kubernetes finds no node, with the least GPUs of such a pod, and its job.

    Until a pod has its node, or its job gives up its start.
    """
    rows = Replica.objects.filter(
        job__queue__in=queues, job__phase=Phase.STARTING, state=ReplicaState.PENDING, node="", ended_at=None, closed_at=None,
        reason__startswith=NO_PLACE,
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
