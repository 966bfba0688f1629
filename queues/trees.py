"""Which queues share quota with one, and the tree of their cohort as `queues.admission` needs it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from .admission import Node
from .admission.cohort import Tree
from .models import Cohort, Queue, RecentUse, TeamQuota


@dataclass(frozen=True)
class Sharing:
    """Queues in the order of their ids; `nodes` is empty where a queue stands by itself."""

    queues: tuple[Queue, ...]
    nodes: tuple[Node, ...] = ()


def ids(queue: Queue) -> set[int]:
    """Return the ids of the queues that share quota with one, itself among them."""
    if queue.flavor_id is None:
        return {queue.pk}
    quotas = dict(TeamQuota.objects.filter(flavor=queue.flavor_id).order_by().values_list("team", "cohort"))
    if queue.team_id not in quotas:
        return {queue.pk}
    parents = dict(Cohort.objects.order_by().values_list("pk", "parent"))
    root = _root(queue.team_id, quotas[queue.team_id], parents)
    teams = [team for team, cohort in quotas.items() if _root(team, cohort, parents) == root]
    return set(Queue.objects.filter(flavor=queue.flavor_id, team__in=teams).order_by().values_list("pk", flat=True))


def sharing(queue: Queue, *, rows: Iterable[Queue] | None = None) -> Sharing:
    """Return the queues that share quota with one, itself among them. `rows`: these, where the caller has read them."""
    if queue.flavor_id is not None:
        for shared in of_flavor(queue.flavor_id, rows=rows):
            if any(one.pk == queue.pk for one in shared.queues):
                return replace(shared, queues=tuple(queue if one.pk == queue.pk else one for one in shared.queues))
    return Sharing((queue,))


def of_flavor(flavor: int, *, instead: TeamQuota | None = None, rows: Iterable[Queue] | None = None) -> list[Sharing]:
    """Return all that share a flavor, one for each root: a cohort with no other above it, or a team that is in none.

    `instead`: a team's quota as it might be, in place of the one that it has. `rows`: queues that the caller has read,
    with their teams and flavors, instead of all of the flavor.
    """
    quotas = {one.team_id: one for one in TeamQuota.objects.filter(flavor=flavor).select_related("team")}
    if instead is not None:
        quotas[instead.team_id] = instead
    if rows is None:
        rows = Queue.objects.filter(flavor=flavor, team__in=quotas).select_related("team", "flavor")
    every = sorted((one for one in rows if one.flavor_id == flavor), key=lambda one: one.pk)
    recent = dict(RecentUse.objects.filter(queue__flavor=flavor).order_by().values_list("queue", "slots"))
    found = Cohort.objects.values_list("pk", "parent_id", "name")
    parents, names = {pk: parent for pk, parent, _ in found}, {pk: name for pk, _, name in found}
    roots: dict[tuple[str, int], dict[int, TeamQuota]] = {}
    for team, one in quotas.items():
        roots.setdefault(_root(team, one.cohort_id, parents), {})[team] = one
    shared = []
    for teams in roots.values():
        queues = tuple(one for one in every if one.team_id in teams)
        leaves = (_leaf(one, recent.get(one.pk, 0.0)) for one in queues)
        nodes = (*_cohorts(teams.values(), parents, names), *_teams(teams, queues, names), *leaves)
        shared.append(Sharing(queues, nodes))
    return shared


def team_node(team: str) -> str:
    return f"team {team}"  # a queue's name has no space


def _root(team: int, cohort: int | None, parents: Mapping[int, int | None]) -> tuple[str, int]:
    """Return the root of a team's tree: a cohort, or the team itself."""
    return ("team", team) if cohort is None else ("cohort", _path(cohort, parents)[-1])


def _path(cohort: int, parents: Mapping[int, int | None]) -> list[int]:
    """Return a cohort and those above it. Services let none be above itself."""
    found = [cohort]
    while (parent := parents[found[-1]]) is not None:
        found.append(parent)
    return found


def _cohorts(
    quotas: Iterable[TeamQuota], parents: Mapping[int, int | None], names: Mapping[int, str]
) -> Iterable[Node]:
    used = {cohort for one in quotas if one.cohort_id is not None for cohort in _path(one.cohort_id, parents)}
    for cohort in sorted(used):
        parent = parents[cohort]
        yield Node(f"cohort {names[cohort]}", None if parent is None else f"cohort {names[parent]}")


def _teams(teams: Mapping[int, TeamQuota], queues: Iterable[Queue], names: Mapping[int, str]) -> Iterable[Node]:
    """A team has itself what its queues do not have of its quota."""
    given: dict[int, int] = {}
    for queue in queues:
        given[queue.team_id] = given.get(queue.team_id, 0) + queue.nominal
    for team, one in teams.items():
        parent = None if one.cohort_id is None else f"cohort {names[one.cohort_id]}"
        own = max(0, one.nominal - given.get(team, 0))
        yield Node(team_node(one.team.name), parent, own, one.borrowing_limit, one.lending_limit, one.weight)


def _leaf(queue: Queue, recent: float) -> Node:
    return Node(queue.name, team_node(queue.team.name), queue.nominal, queue.borrowing_limit, recent=recent)


def most(queue: Queue) -> int:
    """Return how much the jobs of a queue may hold together at most, with what it may borrow."""
    shared = sharing(queue)
    return Tree(shared.nodes, {}).most(queue.name) if shared.nodes else queue.nominal
