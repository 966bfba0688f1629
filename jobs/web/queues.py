"""/queues: how much of each queue is used, by which jobs, and how many wait."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q, Sum
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from accounts.permissions import Act, is_platform_admin, teams_where
from jobs import clusters
from jobs.core import lifecycle
from jobs.models import Job
from jobs.scheduling.quota_use import free_of
from queues.models import Queue
from queues.readable import readable_queues

from .responses import Context, HtmxRequest, Part, answer, named_part

_HOLDING = sorted(lifecycle.HOLDS_QUOTA)


@dataclass(frozen=True)
class Share:
    """A job's part of the bar, in percent of the quota."""

    job: Job
    x: float
    width: float


@dataclass(frozen=True)
class QueueUsage:
    """A queue and its use, in slots."""

    queue: Queue
    used: int = 0
    waiting: int = 0
    wanted: int = 0
    holders: list[Job] = field(default_factory=list)
    bound: int | None = None  # slots that the machine of a local cluster bears, where the quota is beyond that
    may_take: int | None = None  # more now, with what it may borrow; None: it shares with nobody

    @property
    def free(self) -> int:
        return max(0, self.queue.nominal - self.used) if self.may_take is None else self.may_take

    @property
    def shares(self) -> list[Share]:
        whole, x, found = max(self.queue.nominal, self.used, 1), 0.0, []
        for job in self.holders:
            found.append(Share(job, x, 100 * job.slots / whole))
            x += 100 * job.slots / whole
        return found


@login_required
@require_safe
def queues(request: HtmxRequest) -> HttpResponse:
    part = named_part(request, parts=PARTS)
    return answer(request, template=part.template if part else "queues/list.html", context=_context(request))


def _context(request: HtmxRequest) -> Context:
    found = list(readable_queues(request.user).order_by("team__name", "name"))
    managed = teams_where(request.user, Act.MANAGE)
    editable = {queue.pk for queue in found if managed is None or queue.team_id in managed}
    submits = teams_where(request.user, Act.SUBMIT, with_scope=Act.READ)
    seen = {queue.cluster for queue in found if submits is None or queue.team_id in submits}  # as `readable_clusters`
    return {
        "usages": usages(found),
        "editable": editable,
        "may_make": is_platform_admin(request.user),
        "clusters": seen & set(clusters.names()),
    }


PARTS = {"queues": Part("queues/_list.html", _context)}


def usages(queues: list[Queue], *, with_holders: bool = True) -> list[QueueUsage]:
    """Return the use of all queues with two queries; with one where nobody asks which jobs hold them.

    Quota that is shared takes three more for each flavor, and one for all of them.
    """
    jobs = Job.objects.filter(queue__in=queues)
    sums = {
        row["queue_id"]: row
        for row in jobs.active().order_by().values("queue_id").annotate(
            used=Sum("slots", filter=Q(phase__in=_HOLDING), default=0),
            waiting=Count("id", filter=Q(phase=lifecycle.Phase.QUEUED)),
            wanted=Sum("slots", filter=Q(phase=lifecycle.Phase.QUEUED), default=0),
        )
    }  # fmt: skip
    holders: dict[int, list[Job]] = defaultdict(list)
    rows = jobs.holding_quota().select_related("user").order_by("-slots", "id") if with_holders else ()
    for job in rows:
        holders[job.queue_id].append(job)
    free = free_of(queues)
    return [_usage(queue, sums.get(queue.pk, {}), holders[queue.pk], free.get(queue.pk)) for queue in queues]


def _usage(queue: Queue, row: Mapping[str, Any], holders: list[Job], may_take: int | None) -> QueueUsage:
    room = clusters.room_of(queue.cluster)
    bound = room.slots if room and room.slots < queue.nominal else None
    return QueueUsage(queue, row.get("used", 0), row.get("waiting", 0), row.get("wanted", 0), holders, bound, may_take)
