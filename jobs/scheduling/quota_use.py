"""What teams use, borrow and lend of each flavor, and what waits for it: a sum over rows and never a counter."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Sum

from jobs.models import Job
from queues.admission.cohort import Tree
from queues.models import Queue, TeamQuota
from queues.trees import of_flavor, team_node

from .reach import held


@dataclass(frozen=True)
class QuotaUse:
    """In devices, but `waiting_jobs`. `lent`: of what the team does not use, how much others do."""

    quota: TeamQuota
    used: int
    lent: int
    waiting: int
    waiting_jobs: int

    @property
    def borrowed(self) -> int:
        return max(0, self.used - self.quota.nominal)


def use_of(quotas: Iterable[TeamQuota]) -> list[QuotaUse]:
    """Return the use of quotas, in their order; `quotas` have team, flavor and cohort."""
    known = list(quotas)
    flavors = {one.flavor_id for one in known}
    held = dict(
        Job.objects.holding_quota()
        .filter(queue__flavor__in=flavors)
        .order_by()
        .values_list("queue")
        .annotate(total=Sum("slots"))
    )
    waiting = {
        (team, flavor): (slots, jobs)
        for team, flavor, slots, jobs in Job.objects.waiting()
        .filter(queue__flavor__in=flavors)
        .order_by()
        .values_list("team_id", "queue__flavor_id")
        .annotate(slots=Sum("slots"), jobs=Count("pk"))
    }
    trees = {
        (flavor, node): tree
        for flavor in flavors
        for shared in of_flavor(flavor)
        for tree in [Tree(shared.nodes, {queue.name: held.get(queue.pk, 0) for queue in shared.queues})]
        for node in tree.nodes
    }
    found = []
    for one in known:
        node = team_node(one.team.name)
        tree = trees[one.flavor_id, node]
        slots, jobs = waiting.get((one.team_id, one.flavor_id), (0, 0))
        found.append(QuotaUse(one, tree.used[node], tree.lent(node), slots, jobs))
    return found


def free_of(queues: Iterable[Queue]) -> dict[int, int]:
    """Return how much more the jobs of each queue that shares quota may hold now, with what it may borrow, by the queue's id."""
    flavors = {one.flavor_id for one in queues if one.flavor_id is not None}
    shared = [one for flavor in flavors for one in of_flavor(flavor)]
    used = held(queue for one in shared for queue in one.queues) if shared else {}
    found = dict[int, int]()
    for one in shared:
        tree = Tree(one.nodes, {queue.name: used.get(queue.pk, 0) for queue in one.queues})
        found |= {queue.pk: max(0, tree.available(queue.name)) for queue in one.queues}
    return found


def free_now(queue: Queue) -> int:
    """Return how much more the jobs of a queue may hold now, with what it may borrow."""
    shared = free_of([queue]).get(queue.pk)
    return max(0, queue.nominal - held([queue]).get(queue.pk, 0)) if shared is None else shared
