"""Which waiting jobs a pass of the scheduler decides on, and what is stored of all others.

Of each queue these are the first ones, as many as there is room for and one more, which has to wait; and where others may pass
that one, the next ones of a size that is free. Nobody else can start, however many wait.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any

from django.db import connection
from django.db.models import Q, Sum

from common.db import sql
from jobs import clusters
from jobs.models import Job, JobQuerySet, in_order, turn
from queues import admission
from queues.admission import ASIDE, Code, Node, Policy, Reason
from queues.admission.cohort import Tree
from queues.models import Queue
from queues.trees import Sharing

# At most so many of a queue at once. As many that are larger than the quota, or beyond what their user may hold, and so
# hold up nobody, get their reason beside them.
HORIZON = 200
SIZES = (2, 8, 32)  # of what is read of a queue: so that few statements read all of them
FEW, GROWS = (
    2,
    4,
)  # of queues that share quota, of which few have room: what is read first, and times as much where that is short
MOST_STORED = 1000  # reasons of jobs out of reach, in one pass
_PASSED_BY = ASIDE - {Code.BUDGET_SPENT}  # that holds up all of a queue
_NEEDED = (
    "queue_id", "team_id", "user_id", "name", "slots", "roles", "spec", "priority", "created_at", "phase", "phase_since", "attempt",
    "wait_code", "wait_reason",
)  # fmt: skip
_FIRST = sql.load("jobs/sql/first_waiting.sql", size="slots <= q.most", order="priority DESC, created_at, id")
_TOO_LARGE = sql.load("jobs/sql/first_waiting.sql", size="slots > q.most", order="slots, id")


def held(queues: Iterable[Queue]) -> dict[int, int]:
    """Return how many slots the jobs of each queue hold, by the queue's id."""
    rows = Job.objects.holding_quota().filter(queue__in=[one.pk for one in queues]).order_by().values_list("queue")
    return dict(rows.annotate(total=Sum("slots")))


def held_by_users(queue: Queue) -> dict[int, int]:
    rows = Job.objects.holding_quota().filter(queue=queue).order_by().values_list("user")
    return dict(rows.annotate(total=Sum("slots")))


@dataclass(frozen=True)
class Reach:
    """The waiting jobs on which a pass decides. `limits`: how many of the first jobs were read of each queue, by its id.

    `go_on`: queues in which more wait behind these.
    """

    jobs: list[Job]
    first: frozenset[int]  # ids of the first ones of each queue, and of those for which others were preempted
    limits: Mapping[int, int]
    go_on: frozenset[int]

    def short(self, decisions: Iterable[admission.Decision]) -> frozenset[int]:
        """Return the queues of which more has to be read: all first ones start, or wait for something that holds up nobody."""
        in_line = {one.job for one in decisions if isinstance(one, admission.Wait) and one.why.code not in _PASSED_BY}
        return self.go_on - {job.queue_id for job in self.jobs if job.pk in in_line & self.first}


def in_reach(
    shared: Sharing, used: Mapping[int, int], *, before: Reach | None = None, more: Collection[int] = ()
) -> Reach:
    """Return what a pass decides on. `used`: slots held, by queue; `more`: queues of which `before` was too little."""
    tree = _tree(shared, used)
    most = _most(shared, tree)
    queues = [one for one in shared.queues if one.is_open]
    free = {queue.pk: max(0, tree.available(queue.name)) for queue in queues}
    limits = {pk: _size(FEW if shared.nodes else room + 1) for pk, room in free.items()}
    if before is not None:
        limits = {**before.limits, **{pk: _size(GROWS * before.limits[pk]) for pk in more}}
    for queue in queues:
        if queue.policy == Policy.BEST_EFFORT and shared.nodes:
            limits[queue.pk] = HORIZON  # others may be preempted for one that is not the first
    passing = [one for one in queues if one.policy != Policy.STRICT and free[one.pk]]
    beyond = _beyond_user_limits(queues)
    first, go_on = _first_of(queues, limits, most, beyond)
    ids = _ids({one.pk: min(free[one.pk], most[one.pk]) for one in passing}, HORIZON)
    ids |= _aside(queues, most, beyond)
    claiming = Job.objects.waiting().filter(queue__in=list(free), wait_code=Code.PREEMPTING)
    claiming = claiming.exclude(
        wait_code=Code.BEHIND
    )  # says nothing new, but it is the condition of job_waiting_in_front
    first |= set(claiming.order_by().values_list("pk", flat=True))
    return Reach(_read(ids | first, shared), frozenset(first), limits, go_on)


def waiting(shared: Sharing, *, of: Queue | None = None) -> list[Job]:
    """Return the jobs that are looked at where somebody asks why they wait: the first ones of each queue, in order.

    `of`: the queue that is asked about; of the others fewer are read then, the more there are.
    """
    passing, count = [one for one in shared.queues if one.policy != Policy.STRICT], len(shared.queues)
    tree = _tree(shared, held(shared.queues) if passing else {})
    most = _most(shared, tree)
    limits = {one.pk: HORIZON if of is None or one.pk == of.pk else max(4, HORIZON // count) for one in shared.queues}
    beyond = _beyond_user_limits(shared.queues)
    ids = _first_of(shared.queues, limits, most, beyond)[0] | _aside(shared.queues, most, beyond)
    ids |= _ids({one.pk: min(most[one.pk], max(0, tree.available(one.name))) for one in passing}, HORIZON)
    return _read(ids, shared)


Told = tuple[Reason, list[tuple[int, int]]]  # why jobs wait, and of each of these the job and its team


def others(
    shared: Sharing, decided: Collection[int], *, used: Mapping[int, int], spent: Mapping[str, float]
) -> Iterator[Told]:
    """Yield why the jobs wait on which no pass decides yet, where something else is stored; at most MOST_STORED.

    A job that only moves up keeps the reason that it has. `used`: slots held before the pass, by queue; `spent`: queues whose month is
    spent, and until when.
    """
    rows, left, tree = Job.objects.waiting().exclude(pk__in=decided).order_by(), MOST_STORED, _tree(shared, used)
    most = _most(shared, tree)
    kinds: dict[Code | Policy, dict[int, Queue]] = defaultdict(dict)
    for queue in shared.queues:
        open_kind = Code.BUDGET_SPENT if queue.name in spent else Policy(queue.policy)
        kinds[open_kind if queue.is_open else Code.ON_HOLD][queue.pk] = queue
    for kind, queues in kinds.items():
        theirs = rows.filter(queue__in=list(queues))
        if isinstance(kind, Code) or kind is Policy.STRICT:
            code = kind if isinstance(kind, Code) else Code.BEHIND
            found = _of_code(theirs, code, queues, most if code is Code.BEHIND else {}, spent)
        else:
            found = _of_sizes(theirs, queues, most, {pk: tree.available(one.name) for pk, one in queues.items()})
        for reason, jobs in found:
            yield reason, jobs[:left]
            left -= len(jobs)
            if left <= 0:
                return


def _of_code(
    rows: JobQuerySet, code: Code, queues: Mapping[int, Queue], most: Mapping[int, int], spent: Mapping[str, float]
) -> Iterator[Told]:
    """Yield those of each queue that have another reason; not those beyond `most`, which have one of their own."""
    if most:
        by_bound: dict[int, list[int]] = defaultdict(list)
        for pk in queues:
            by_bound[most[pk]].append(pk)
        rows = rows.filter(reduce(or_, (Q(queue__in=pks, slots__lte=bound) for bound, pks in by_bound.items())))
    found = sorted(rows.exclude(wait_code=code).values_list("queue", "pk", "team")[:MOST_STORED])
    for queue, ones in groupby(found, key=lambda one: one[0]):
        name = queues[queue].name
        yield Reason(code, name, at=spent.get(name)), [(pk, team) for _, pk, team in ones]


def _of_sizes(
    rows: JobQuerySet, queues: Mapping[int, Queue], most: Mapping[int, int], free: Mapping[int, int]
) -> Iterator[Told]:
    """Yield jobs of queues in which jobs may pass each other: they wait for quota, or behind others if they would fit."""
    for queue, slots, code, words in list(rows.values_list("queue", "slots", "wait_code", "wait_reason").distinct()):
        one = queues[queue]
        code_of = Code.BEHIND if slots <= free[queue] else Code.WAITING_FOR_QUOTA
        reason = Reason(code_of, one.name, {one.resource: slots}, quota=one.quota)
        if slots <= most[queue] and (code, words) != (reason.code, admission.words(reason, is_lasting=True)):
            same = rows.filter(queue=queue, slots=slots, wait_code=code, wait_reason=words)
            yield reason, list(same.values_list("pk", "team")[:MOST_STORED])


def _tree(shared: Sharing, used: Mapping[int, int]) -> Tree:
    nodes = shared.nodes or [Node(one.name, nominal=one.nominal) for one in shared.queues]
    return Tree(nodes, {one.name: used.get(one.pk, 0) for one in shared.queues})


def _most(shared: Sharing, tree: Tree) -> dict[int, int]:
    """Return how large a job of each queue may be at most, whatever is used now, by the queue's id."""
    room = clusters.room_of(shared.queues[0].cluster)
    found = {one.pk: tree.most(one.name) for one in shared.queues}
    return found if room is None else {pk: min(slots, room.slots) for pk, slots in found.items()}


def _first_of(
    queues: Iterable[Queue], limits: Mapping[int, int], most: Mapping[int, int], beyond: Mapping[int, Q]
) -> tuple[set[int], frozenset[int]]:
    """Return the ids of at least so many of the first jobs of each queue, and the queues that may have more.

    `beyond`: the jobs of a queue that its limit for users keeps from starting.
    """
    by_size: dict[int, dict[int, int]] = defaultdict(dict)
    found, go_on = set[int](), set[int]()
    for queue in queues:
        if queue.pk not in beyond:
            by_size[_size(limits[queue.pk])][queue.pk] = most[queue.pk]
        else:
            mine = in_order(Job.objects.waiting().filter(queue=queue, slots__lte=most[queue.pk]))
            found |= set(mine.exclude(beyond[queue.pk]).values_list("pk", flat=True)[:HORIZON])
    for size, bounds in by_size.items():
        rows = _rows(bounds, size)
        found |= {job for _, job in rows}
        if size < HORIZON:
            go_on |= {queue for queue, count in Counter(queue for queue, _ in rows).items() if count == size}
    return found, frozenset(go_on)


def _size(count: int) -> int:
    return min(HORIZON, next((size for size in SIZES if count <= size), HORIZON))


def _aside(queues: Iterable[Queue], most: Mapping[int, int], beyond: Mapping[int, Q]) -> set[int]:
    """Return the ids of jobs that hold up nobody: they are too large for their queue, or beyond what their user may hold."""
    found = _ids({one.pk: most[one.pk] for one in queues}, HORIZON, are_larger=True)
    for queue, limited in beyond.items():
        theirs = in_order(Job.objects.waiting().filter(limited, queue=queue))
        found |= set(theirs.values_list("pk", flat=True)[:HORIZON])
    return found


def _beyond_user_limits(queues: Iterable[Queue]) -> dict[int, Q]:
    """Return what matches jobs that cannot start since their user may not hold more, by the id of a queue with such a limit."""
    found = dict[int, Q]()
    for queue in queues:
        if (limit := queue.slots_per_user) is not None:
            found[queue.pk] = Q(slots__gt=limit)
            for user, slots in held_by_users(queue).items():
                found[queue.pk] |= Q(user=user, slots__gt=max(0, limit - slots))
    return found


def _ids(bounds: Mapping[int, int], limit: int, *, are_larger: bool = False) -> set[int]:
    return {job for _, job in _rows(bounds, limit, are_larger=are_larger)}


def _rows(bounds: Mapping[int, int], limit: int, *, are_larger: bool = False) -> list[tuple[int, int]]:
    """Return queue and job of the first jobs of each queue.

    `bounds`: the most slots of a job, by the queue's id; with `are_larger` what all of them exceed.
    """
    if not bounds:
        return []
    given: dict[str, Any] = {"queues": list(bounds), "most": list(bounds.values()), "limit": limit}
    with connection.cursor() as cursor:
        if are_larger:
            cursor.execute(_TOO_LARGE, given)
        else:
            cursor.execute(_FIRST, given)
        return [(queue, job) for queue, job in cursor.fetchall()]


def _read(ids: Collection[int], shared: Sharing) -> list[Job]:
    """Return these jobs by the order of their queues, and in each as they are admitted."""
    place = {queue.pk: at for at, queue in enumerate(shared.queues)}
    jobs = Job.objects.waiting().filter(pk__in=ids).order_by().only(*_NEEDED)
    return sorted(jobs, key=lambda job: (place[job.queue_id], turn(job)))
