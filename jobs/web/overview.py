"""/: what is used and free, what needs attention, the queues and one's own jobs, on one screen."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from jobs.analysis import cluster_nodes, overview
from jobs.core.node_summary import Summary
from jobs.models import Job
from queues import requests
from queues.models import Resource
from queues.readable import readable_clusters, readable_queues

from .queues import QueueUsage, usages
from .responses import Context, HtmxRequest, Part, answer, named_part

MINE = 6  # of one's own jobs
QUEUES = 12
TEAMS = 4  # of one flavor, by what they hold
UNUSED = 5  # queues that are named


@dataclass
class Flavor:
    """What queues of one cluster and resource have in all. `teams`: what each holds; `idle`: how many of these GPUs are idle.

    `nodes`: the cluster's, for GPUs, where they are known.
    """

    cluster: str
    resource: str
    nominal: int = 0
    used: int = 0
    wanted: int = 0
    teams: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    idle: dict[str, int] = field(default_factory=dict)
    nodes: Summary | None = None

    @property
    def unit(self) -> str:
        return str(Resource(self.resource).label)

    @property
    def free(self) -> int:
        return max(0, self.nominal - self.used)

    @property
    def share(self) -> float:
        return 100 * min(1.0, self.used / max(1, self.nominal))

    @property
    def holders(self) -> list[tuple[str, int, int]]:
        """The teams that hold most: name, what they hold, and how much of that is idle."""
        first = sorted(self.teams.items(), key=lambda one: (-one[1], one[0]))[:TEAMS]
        return [(team, held, self.idle.get(team, 0)) for team, held in first]


@login_required
@require_safe
def page(request: HtmxRequest) -> HttpResponse:
    part = named_part(request, parts=PARTS)
    return answer(request, template=part.template if part else "jobs/overview.html", context=_context(request))


def _context(request: HtmxRequest) -> Context:
    now = timezone.now()
    found = usages(list(readable_queues(request.user).order_by("team__name", "name")), with_holders=False)
    medians = overview.median_waits([one.queue.pk for one in found], now=now)
    known, readable = readable_clusters(request.user), Job.objects.readable_by(request.user)
    idle = overview.idle(readable, now=now)
    unused = overview.unused([one.queue for one in found], now=now)
    # Those with the most waiting jobs first: they are why somebody looks.
    busiest = sorted(found, key=lambda one: (-one.waiting, -one.used, one.queue.name))
    return {
        "flavors": [_with_nodes(one, idle, known, now=now) for one in flavors(found)],
        "asked": requests.to_decide(request.user).order_by().count(),
        "attention": overview.attention(readable, now=now),
        "unused": unused[:UNUSED],
        "more_unused": max(0, len(unused) - UNUSED),
        "queues": [(one, medians.get(one.queue.pk)) for one in busiest[:QUEUES]],
        "more_queues": max(0, len(found) - QUEUES),
        "mine": list(Job.objects.filter(user=request.user).select_related("queue").order_by("-id")[:MINE]),
        "clusters": known,
    }


def _with_nodes(
    one: Flavor, idle: Mapping[tuple[str, str], int], known: Collection[str] | None, *, now: datetime
) -> Flavor:
    """Add what the nodes of a flavor of GPUs are, for who may see them, and how many GPUs each team leaves idle."""
    if one.resource == Resource.GPU:
        one.idle = {team: count for (cluster, team), count in idle.items() if cluster == one.cluster}
        if known is None or one.cluster in known:
            one.nodes = cluster_nodes.sums(one.cluster, now=now)
    return one


def flavors(found: list[QueueUsage]) -> list[Flavor]:
    """Return the sums of these queues by cluster and resource, the largest first."""
    sums: dict[tuple[str, str], Flavor] = {}
    for one in found:
        key = (one.queue.cluster, one.queue.resource)
        flavor = sums.setdefault(key, Flavor(*key))
        flavor.nominal += one.queue.nominal
        flavor.used += one.used
        flavor.wanted += one.wanted
        if one.used:
            flavor.teams[one.queue.team.name] += one.used
    return sorted(sums.values(), key=lambda one: (one.resource != Resource.GPU, -one.nominal, one.cluster))


PARTS = {"overview": Part("jobs/_overview.html", _context)}
