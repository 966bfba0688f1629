"""Checks of a cluster by pods: asked for by platform administrators, and what is known of them."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta

from django.db import IntegrityError
from django.utils import timezone

from accounts import audit
from accounts.audit import AuditAction
from accounts.models import User
from accounts.permissions import require_platform_admin
from common import faultpoints
from common.errors import Conflict, InvalidInput, Problem
from common.signals import doorbell
from jobs import clusters, frameworks
from jobs.clusters import Inspected, Probes
from jobs.core import pod_fields, probing
from jobs.models import ClusterCheck
from queues import namespaces, templates
from queues.models import Queue
from queues.shape import ReplicaShape, merge

from . import pods

TASK = "jobs.check_clusters"
BUSY = timedelta(seconds=60)  # longer than the calls of one turn for one check
SOON, LATER = (
    timedelta(seconds=1.5),
    timedelta(seconds=10),
)  # until the next step: of a new check, of one that pulls an image
MOST_KEPT = 20  # of a cluster, the newest


def start(*, cluster: str, by: User, image: str = "", queue: Queue | None = None) -> tuple[ClusterCheck, bool]:
    """Return the check of an image, or of a queue's, and whether it is new: one that still runs is not begun again.

    Without either it is the cluster's own image. Raises NotAllowed, InvalidInput, and Conflict where the same image is
    checked for another queue.
    """
    require_platform_admin(by, "check clusters")
    name = _image(cluster, image=image, queue=queue)
    now = timezone.now()
    _give_up(cluster, name, now=now)
    try:
        with faultpoints.atomic("checks.start"):
            row = ClusterCheck.objects.create(
                cluster=cluster, image=name, queue=queue, asked_by=by, asked_at=now, due_at=now
            )
            after = {"image": name, "queue": queue.name if queue else ""}
            audit.record(AuditAction.CLUSTER_CHECKED, by=by, on=row, after={"cluster": cluster, **after})
            doorbell.poke(TASK)
    except IntegrityError as error:
        there = ClusterCheck.objects.filter(cluster=cluster, image=name, ended_at=None).first()
        if there is None or there.queue_id != (queue.pk if queue else None):
            raise Conflict(f"image {name} is being checked on cluster {cluster}; wait until that has ended") from error
        return there, False
    _forget_old(cluster)
    return row, True


def shape_of(queue: Queue) -> ReplicaShape:
    """Return what the queue says of the pods of a usual job, over what its cluster says."""
    content = templates.content(queue)
    return frameworks.roles(pods.usual_spec(content), below=pods.layer_of(content))[0].shape


def probe_of(row: ClusterCheck) -> probing.Probe:
    """Return what a cluster is asked: the image of the row, on the nodes of its queue. Raises InvalidInput."""
    below = shape_of(row.queue) if row.queue else ReplicaShape()
    return probing.Probe(row.uid, merge(below, ReplicaShape(image=row.image)), namespace_of(row))


def namespace_of(row: ClusterCheck) -> str:
    """Return the namespace of the pods of a check: that of its queue's team, empty where it has none of its own."""
    return namespaces.of(row.queue.team_id, row.cluster, at=row.asked_at) if row.queue else ""


def newest(cluster: str, *, most: int) -> list[ClusterCheck]:
    return list(ClusterCheck.objects.filter(cluster=cluster).select_related("queue", "asked_by")[:most])


def unfinished(now: datetime, *, most: int) -> list[ClusterCheck]:
    """Return those whose turn it is: they have no findings yet, or pods are left of them. The oldest first."""
    due = ClusterCheck.objects.filter(removed_at=None, due_at__lte=now)
    return list(due.select_related("queue__team").order_by("asked_at", "pk")[:most])


def take(row: ClusterCheck, *, now: datetime) -> bool:
    """Return whether this process alone works on it for a while; another one goes on if it dies."""
    free = ClusterCheck.objects.filter(pk=row.pk, due_at=row.due_at, removed_at=None)
    with faultpoints.around("checks.take"):
        return bool(free.update(due_at=now + BUSY))


def pause_of(row: ClusterCheck, *, now: datetime) -> timedelta:
    """Return how long it is left alone between two steps: the longer, the older it is."""
    return min(max(SOON, (now - row.asked_at) / 20), LATER)


def release(row: ClusterCheck, *, now: datetime, pause: timedelta) -> None:
    with faultpoints.around("checks.write"):
        ClusterCheck.objects.filter(pk=row.pk).update(due_at=now + pause)


def end(row: ClusterCheck, found: Iterable[Inspected], *, now: datetime) -> None:
    """Write what was found. Its pods are deleted next, by whichever process has its turn."""
    findings = [asdict(one) for one in found]
    with faultpoints.around("checks.write"):
        ClusterCheck.objects.filter(pk=row.pk, ended_at=None).update(findings=findings, ended_at=now)


def removed(row: ClusterCheck, *, now: datetime) -> None:
    with faultpoints.around("checks.write"):
        ClusterCheck.objects.filter(pk=row.pk).update(removed_at=now)


def _image(cluster: str, *, image: str, queue: Queue | None) -> str:
    """Return the image of the check's pods. Raises InvalidInput."""
    problems: list[Problem] = []
    backend = clusters.backend(cluster)
    if not backend.MAKES_PODS:
        raise InvalidInput(Problem("cluster", cluster, "has no pods: it starts processes of one machine"))
    if image and queue:
        problems.append(Problem("image", image, "is given beside a queue, which has its own; leave one of them out"))
    if queue and queue.cluster != cluster:
        problems.append(Problem("queue", queue.name, f"is not on cluster {cluster} but on {queue.cluster}"))
    if image:
        pod_fields.parse({"image": image}, problems)
    if problems:
        raise InvalidInput(*problems)
    if not isinstance(found := clusters.get(cluster), Probes):
        raise InvalidInput(Problem("cluster", cluster, "cannot be looked at by pods"))
    name = image or (shape_of(queue).image if queue else "") or found.shape.image
    if not name:
        raise InvalidInput(Problem("image", None, f"is missing: cluster {cluster} has no IMAGE"))
    return name


def _give_up(cluster: str, image: str, *, now: datetime) -> None:
    """End an earlier check of the image that nobody drove to its end, so that it does not stand in the way."""
    earlier = ClusterCheck.objects.filter(cluster=cluster, image=image, ended_at=None)
    for row in earlier.filter(asked_at__lt=now - probing.GIVEN_UP):
        end(row, [Inspected("pods", "wrong", "the check did not come to its end and was given up")], now=now)


def _forget_old(cluster: str) -> None:
    done = ClusterCheck.objects.filter(removed_at__isnull=False, cluster=cluster)
    kept = list(done.values_list("pk", flat=True)[:MOST_KEPT])
    if len(kept) == MOST_KEPT:
        with faultpoints.around("checks.write"):
            done.filter(pk__lt=kept[-1]).delete()
