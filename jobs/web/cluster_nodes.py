"""The nodes of a cluster: in numbers, what is wrong with some, a row of squares for each; and the page of one node.

A page has at most NODES_SHOWN rows and SQUARES_SHOWN squares in each, whatever the size of the cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from accounts.models import User
from accounts.permissions import is_platform_admin, readable_teams
from jobs import clusters
from jobs.analysis import cluster_nodes
from jobs.analysis.cluster_nodes import JobName, JobOnNode
from jobs.core import node_summary
from jobs.core.node_summary import NodeFacts
from jobs.core.silence import IDLE_AFTER
from jobs.models import AttemptFailure, ClusterLook, Replica
from queues.models import ExcludedNode
from queues.readable import readable_queues

from .appearance import REPLICAS
from .queues import usages
from .responses import Context, HtmxRequest, answer, target_id, whole

NODES_SHOWN, EXCEPTIONS_SHOWN, JOBS_SHOWN, QUEUES_SHOWN = 100, 12, 3, 50
SQUARES_SHOWN = 32  # of a node; beyond that the words beside them say it
MOST_QUERY = 80
COLOURS = 8
THEIRS = "another team's job"
ONLY = (("", "All"), ("wrong", "With a problem"), ("free", "With free GPUs"), ("idle", "With idle GPUs"))
_ONLY = {
    "wrong": lambda one: bool(one.exceptions),
    "free": lambda one: bool(one.free),
    "idle": lambda one: bool(one.idle),
}
HISTORY_SHOWN, FAILURES_SHOWN, REPLICAS_SHOWN = 50, 20, 30
STALE_SECONDS = 180.0  # after which a page says that what it shows is old


@dataclass(frozen=True)
class Block:
    """GPUs of a node that look the same, side by side. `look`: CSS classes, of our own only."""

    look: str
    count: int


@dataclass(frozen=True)
class NodeRow:
    """One node as somebody may see it."""

    facts: NodeFacts
    url: str
    name: str
    jobs: list[JobOnNode] = field(default_factory=list)

    @property
    def words(self) -> str:
        """What its GPUs do: "8 GPUs: 4 held by train (1 idle), 2 free"."""
        one = self.facts
        parts = [_held_words(job) for job in self.jobs]
        parts += [f"{one.others} by pods of others"] if one.others else []
        parts += [f"{one.rest} free" if one.takes_pods else f"{one.rest} not usable"] if one.rest else []
        gpus = f"{one.gpus} GPU{'' if one.gpus == 1 else 's'}" if one.gpus else "no GPUs"
        return f"{gpus}{': ' if parts else ''}{', '.join(parts)}"

    @property
    def squares(self) -> SafeString:
        """The same as drawing: one element for each GPU."""
        room, found = SQUARES_SHOWN, []
        for one in _blocks(self.facts, self.jobs):
            found.append((_squares(one.look, min(one.count, room)),))
            room -= min(one.count, room)
        return format_html_join("", "{}", found)

    @property
    def hidden_squares(self) -> int:
        return max(0, sum(one.count for one in _blocks(self.facts, self.jobs)) - SQUARES_SHOWN)

    @property
    def first_jobs(self) -> list[tuple[str, JobOnNode]]:
        """The first of its jobs, each with its colour."""
        return [(_colour(one), one) for one in self.jobs[:JOBS_SHOWN]]

    @property
    def more_jobs(self) -> int:
        return max(0, len(self.jobs) - JOBS_SHOWN)


# A page has eight hundred squares, of some dozens of looks.
@lru_cache(1024)
def _squares(look: str, count: int) -> SafeString:
    return format_html_join("", '<i class="{}"></i>', ((look,) for _ in range(count)))


def _colour(one: JobOnNode) -> str:
    return f"c{one.job.pk % COLOURS}" if one.job else "theirs"


def _held_words(one: JobOnNode) -> str:
    rest = [f"{count} {word}" for count, word in ((one.idle, "idle"), (one.broken, "with errors")) if count]
    return f"{one.slots} held by {one.job.name if one.job else THEIRS}" + (f" ({', '.join(rest)})" if rest else "")


def _blocks(facts: NodeFacts, jobs: Iterable[JobOnNode]) -> list[Block]:
    """Return a node's GPUs in the order in which they are drawn: of each job those with errors first, then the idle ones."""
    found = []
    for one in jobs:
        broken = min(one.broken, one.slots)
        idle = min(one.idle, one.slots - broken)
        parts = (("bad", broken), ("still", idle), ("", one.slots - broken - idle))
        found += [Block(f"{_colour(one)} {look}".strip(), count) for look, count in parts]
    found.append(Block("foreign", facts.others or 0))
    found.append(Block("free" if facts.takes_pods else "out", facts.rest))
    return [one for one in found if one.count]


def section(request: HtmxRequest, name: str) -> Context:
    """Return what the nodes of a cluster are shown with: nine queries, and three for its queues."""
    user, now = request.user, timezone.now()
    with_names = cluster_nodes.shows_names(user)
    facts = cluster_nodes.facts(name, now=now)
    if not with_names:
        facts.sort(key=lambda one: one.number)
    text, only = request.GET.get("q", "").strip()[:MOST_QUERY], request.GET.get("only", "")
    chosen = [one for one in facts if _is_asked_for(one, text, only, with_names=with_names)]
    page = max(1, min(whole(request.GET.get("page")) or 1, -(-len(chosen) // NODES_SHOWN)))
    part = chosen[(page - 1) * NODES_SHOWN : page * NODES_SHOWN]
    wrong = [one for one in facts if one.exceptions]
    shown = wrong[:EXCEPTIONS_SHOWN] if not (text or only) and page == 1 else []
    part = cluster_nodes.with_jobs(name, part, now=now)
    jobs, look = cluster_nodes.readable_jobs(user, part), cluster_nodes.look(name)
    queues = list(readable_queues(user).filter(cluster=name).order_by("team__name", "name")[:QUEUES_SHOWN])
    return {
        "summary": node_summary.summary(facts),
        "look": look,
        "says": _says(name, look, user),
        "exceptions": [row(name, one, {}, with_names=with_names) for one in shown],
        "more_exceptions": len(wrong) - len(shown) if shown else 0,
        "rows": [row(name, one, jobs, with_names=with_names) for one in part],
        "count": len(chosen), "page": page, "first": (page - 1) * NODES_SHOWN + 1, "last": (page - 1) * NODES_SHOWN + len(part),
        "before": page - 1 if page > 1 else None, "after": page + 1 if page * NODES_SHOWN < len(chosen) else None,
        "q": text, "only": only, "choices": ONLY, "idle_minutes": int(IDLE_AFTER.total_seconds() // 60),
        "queues": usages(queues, with_holders=False),
    }  # fmt: skip


def _is_asked_for(one: NodeFacts, text: str, only: str, *, with_names: bool) -> bool:
    """Return whether a node is among those that the filters of the page leave."""
    called = cluster_nodes.shown(one, with_names=with_names)
    is_found = text.lower() in called.lower() or text.lower() in one.product.lower()
    return is_found and (only not in _ONLY or _ONLY[only](one))


def _says(name: str, look: ClusterLook | None, user: User) -> str:
    """Return why the nodes are not shown as they are now, empty if they are. Only administrators get the cluster's words."""
    if not hasattr(clusters.backend(name), "list_nodes"):
        return "Its replicas are processes of one machine: there are no nodes to show."
    if look is None:
        return "Its nodes are looked at once a minute, and have not been yet."
    words = look.problem if is_platform_admin(user) else "the cluster does not say what nodes it has"
    if look.problem:
        return f"Its nodes are shown as they were: {words}." if look.seen_at else f"Its nodes are not known: {words}."
    is_old = look.asked_at is None or (timezone.now() - look.asked_at).total_seconds() > STALE_SECONDS
    return "Its nodes are shown as they were: nothing looks at them now." if is_old else ""


def row(cluster: str, facts: NodeFacts, jobs: Mapping[int, JobName], *, with_names: bool) -> NodeRow:
    """Return a node as it is shown. A key needs no quoting (`cluster_nodes.key`), and `reverse` for each would cost a third of a page."""
    key = cluster_nodes.key(facts, with_names=with_names)
    name = cluster_nodes.shown(facts, with_names=with_names)
    return NodeRow(facts, f"{_prefix(cluster)}{key}", name, cluster_nodes.jobs_on(facts, jobs))


@lru_cache(64)
def _prefix(cluster: str) -> str:
    return reverse("cluster-node", args=[cluster, "x"]).removesuffix("x")


@login_required
@require_safe
def node(request: HtmxRequest, name: str, node: str) -> HttpResponse:
    """Show a node: what it is and holds, the jobs that ran there, verdicts that blame it, and how it changed."""
    user, now = request.user, timezone.now()
    with_names = cluster_nodes.shows_names(user)
    found = cluster_nodes.find(name, node, with_names=with_names) if cluster_nodes.may_see(user, name) else None
    if found is None:
        raise Http404
    (facts,) = cluster_nodes.of_rows(name, [found], now=now)
    shown = row(name, facts, cluster_nodes.readable_jobs(user, [facts]), with_names=with_names)
    failures = cluster_nodes.failures(found, now=now, most=FAILURES_SHOWN)
    is_admin, teams = is_platform_admin(user), readable_teams(user)
    context: Context = {
        "cluster": name,
        "node": found,
        "row": shown,
        "with_names": with_names,
        "is_admin": is_admin,
        "exclusion": _exclusion(name, found.name) if is_admin and facts.is_excluded else None,
        "failures": [(one, _may_read(one, teams)) for one in failures],
        "replicas": _replicas(cluster_nodes.replicas(found, teams=teams, most=REPLICAS_SHOWN)),
        "history": cluster_nodes.history(found, most=HISTORY_SHOWN),
        "look": cluster_nodes.look(name),
    }
    is_part = target_id(request) == "node"
    return answer(request, template="jobs/_node.html" if is_part else "jobs/node.html", context=context)


def _exclusion(cluster: str, name: str) -> ExcludedNode | None:
    rows = ExcludedNode.objects.filter(cluster=cluster, name=name, readmitted_at=None)
    return rows.select_related("excluded_by").first()


def _may_read(failure: AttemptFailure, teams: Sequence[int] | None) -> bool:
    return teams is None or failure.job.team_id in teams


def _replicas(found: Iterable[Replica]) -> list[Any]:
    """Return replicas with how each looks."""
    return [(one, REPLICAS[one.state]) for one in found]
