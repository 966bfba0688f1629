"""Decide admission: one decision for each waiting job. Pure.

Of the next jobs of all queues the first one is considered next: those that stay within what their cohort, team and queue have
come before those that borrow, then they go by priority, then by what their team borrows per weight (who borrows less comes first),
then by age. Of a queue's jobs that do not fit now the first is the *head*; whether
jobs behind it may start before it is the queue's policy. For a head that stays within what its queue or team has, room is
made: jobs that borrow it are preempted, and until they are gone nobody else borrows it. Where the nodes of the cluster are
known, a job needs room on them as well, for all of its replicas at once. A job that waits for a name takes no
quota and holds up nobody, nor does one that is larger than all that its queue may ever have.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import preempt
from .cohort import Node, Tree
from .fleet import Fleet
from .reasons import Code, Reason, words
from .reservation import Reservation, passes, reserve, without
from .snapshot import Holding, Machine, Pending, Policy, QueueState


@dataclass(frozen=True)
class Admit:
    job: int


@dataclass(frozen=True)
class Wait:
    """Not admitted now. `is_head`: the first of its queue that waits; `victims`: jobs that are to be preempted for it."""

    job: int
    why: Reason
    is_head: bool = False
    victims: tuple[int, ...] = ()

    @property
    def reason(self) -> str:
        return words(self.why)


Decision = Admit | Wait
_Turn = tuple[tuple[bool, ...], int, tuple[float, ...], float, int]


def decide(
    queues: Iterable[QueueState], pending: Iterable[Pending], *, nodes: Iterable[Node] = (), now: float = 0.0
) -> list[Decision]:
    """Return one decision per pending job, in the order in which they were considered.

    `nodes`: of the cohorts, teams and queues that share quota. A queue that is none of them stands by itself.
    """
    state = Round(queues, nodes, now=now)
    return [state.consider(job) for job in state.in_turn(pending)]


# Who waits for one of these holds up nobody.
ASIDE = frozenset(
    {
        Code.ON_HOLD, Code.BUDGET_SPENT, Code.EXCEEDS_MAXIMUM, Code.EXCEEDS_USER_LIMIT, Code.USER_LIMIT,
        Code.MACHINE_TOO_SMALL, Code.NAME_IN_USE, Code.NO_NODE_SHAPE,
    }
)  # fmt: skip


@dataclass
class _Group:
    """Queues that share quota, and with it names and a machine.

    `real` is what jobs hold now; `planned` is without those that leave, and with what is kept for heads that wait.
    `fleet` and `planned_fleet`: the same of nodes, where they are known, with room for `comes`: heads for which jobs leave.
    `first`: the first head for which nothing could be kept, since it would only borrow.
    """

    real: Tree
    planned: Tree
    holding: dict[str, list[Holding]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    firmly: set[str] = field(default_factory=set)  # queues whose own jobs must leave it too: others went for it
    taken: dict[str, int] = field(default_factory=dict)  # names of jobs that were admitted in this round
    admitted: int = 0  # slots of these jobs
    new: set[int] = field(default_factory=set)  # they are not preempted before the next round
    awaited: set[int] = field(default_factory=set)  # preempted jobs that a head was already told to wait for
    first: "_First | None" = None
    fleet: Fleet | None = None
    planned_fleet: Fleet | None = None
    comes: list[Pending] = field(default_factory=list)

    def has_nodes(self, job: Pending) -> bool:
        """Whether the nodes have room for a job once those that leave are gone."""
        return self.planned_fleet is None or self.planned_fleet.fits(job.gang)

    def leaves(self, one: Holding) -> None:
        """Plan without a job that gives back what it holds."""
        self.planned.use(one.queue, -one.amount)
        if self.planned_fleet is not None:
            self.planned_fleet.give_back(one.job)

    def fleets(self) -> Iterator[Fleet]:
        yield from (one for one in (self.fleet, self.planned_fleet) if one is not None)


@dataclass
class _First:
    job: Pending
    reserved: Reservation | None


@dataclass
class _Line:
    """The jobs of one queue that already have to wait, in this round."""

    ahead: list[int] = field(default_factory=list)
    reserved: Reservation | None = None


class Round:
    """The working copy of a snapshot: admissions change it, and so does what is kept for those that wait."""

    def __init__(self, queues: Iterable[QueueState], nodes: Iterable[Node] = (), *, now: float) -> None:
        self.now = now
        self.queues = {queue.name: queue for queue in queues}
        self._groups = {
            name: group for group in _groups(self.queues, {node.name: node for node in nodes}) for name in group.holding
        }
        self._lines = {name: _Line() for name in self.queues}
        self._by_user = {name: dict(queue.user_used) for name, queue in self.queues.items()}
        self._claiming: set[int] = set()  # jobs for which others were preempted in this round
        self._is_now = True  # until it goes on at a later moment

    def in_turn(self, pending: Iterable[Pending]) -> Iterator[Pending]:
        """Yield the jobs in the order in which they are to be considered, each before the next is chosen."""
        lines: dict[str, list[Pending]] = {}
        for job in sorted(pending, key=lambda one: (not self._claims(one), one.order), reverse=True):
            lines.setdefault(job.queue, []).append(job)
        if len(lines) == 1:
            (only,) = lines.values()
            yield from reversed(only)
            return
        heap = [(self._turn(line[-1]), name) for name, line in lines.items()]
        heapq.heapify(heap)
        while heap:
            turn, name = heap[0]
            if (current := self._turn(lines[name][-1])) != turn:  # its team borrows more by now
                heapq.heapreplace(heap, (current, name))
                continue
            yield lines[name].pop()
            while lines[name] and self._waits_anyway(lines[name][-1]):
                yield lines[name].pop()
            if lines[name]:
                heapq.heapreplace(heap, (self._turn(lines[name][-1]), name))
            else:
                heapq.heappop(heap)

    def consider(self, job: Pending) -> Decision:
        """Decide on the next job; one that is admitted holds its quota from then on."""
        line = self._lines[job.queue]
        if why := self.obstacle(job):
            return Wait(job.job, why)
        decision = self._decide(job, line)
        if isinstance(decision, Admit):
            self._take(job, line)
        else:
            if decision.why.code is Code.PREEMPTING:
                self._claiming.add(job.job)
            if decision.is_head:
                self._reserve(job, line)
            line.ahead.append(job.job)
        return decision

    def admits(self, ordered: Iterable[Pending]) -> list[tuple[Pending, Decision]]:
        """Consider jobs that are in order; return what is admitted, and what others are preempted for.

        It looks no further than needed.
        """
        found = []
        for job in ordered:
            line, queue = self._lines[job.queue], self.queues[job.queue]
            if line.ahead and (queue.policy is Policy.STRICT or self.available(job.queue) < job.amount):
                continue
            decision = self.consider(job)
            if isinstance(decision, Admit) or decision.victims:
                found.append((job, decision))
        return found

    def begin_again(self, *, now: float) -> None:
        """Go on at a later moment: everybody may be considered once more."""
        self.now, self._is_now = now, False
        self._lines = {name: _Line() for name in self.queues}
        for group in self._groups.values():
            for name, amount in group.kept.items():
                group.planned.use(name, -amount)
            group.kept.clear()
            if group.planned_fleet is not None:
                for job in group.comes:
                    group.planned_fleet.give_back(job.job)
            group.comes.clear()
            group.firmly.clear()
            group.first = None
            group.new.clear()
            group.awaited.clear()

    def release(self, job: int, queue: str) -> None:
        """Take away a job that has ended."""
        group = self._groups[queue]
        gone = next(one for one in group.holding[queue] if one.job == job)
        group.holding[queue].remove(gone)
        group.real.use(queue, -gone.amount)
        self._by_user[queue][gone.user] = self._by_user[queue].get(gone.user, 0) - gone.amount
        if not gone.is_leaving:
            group.planned.use(queue, -gone.amount)
        for fleet in group.fleets():
            fleet.give_back(job)
        group.admitted -= gone.amount
        group.taken = {name: holder for name, holder in group.taken.items() if holder != job}
        state = self.queues[queue]
        taken = {name: holder for name, holder in state.taken.items() if holder != job}
        self.queues[queue] = replace(state, taken=taken)

    def available(self, queue: str) -> int:
        """Return how much more a queue may take now, beside what is kept for the heads of others."""
        group = self._groups[queue]
        found = group.real.available(queue)
        kept = 0 if queue in group.firmly else group.kept.get(queue, 0)
        if not kept:
            return min(found, group.planned.available(queue))
        group.planned.use(queue, -kept)
        found = min(found, group.planned.available(queue))
        group.planned.use(queue, kept)
        return found

    def latest(self, job: Pending) -> float | None:
        """Return when the first job of a queue that backfills starts at the latest, as its deadlines have it; else None."""
        if self.queues[job.queue].policy is not Policy.BACKFILL or (found := self._reserved(job)) is None:
            return None
        return found.at

    def obstacle(self, job: Pending) -> Reason | None:
        """Return what keeps a job from starting, however much of the quota is free."""
        queue, group = self.queues[job.queue], self._groups[job.queue]
        if not queue.is_open:
            return Reason(Code.ON_HOLD, queue.name)
        if queue.spent_until is not None and queue.spent_until > self.now:
            return Reason(Code.BUDGET_SPENT, queue.name, job.asked, at=queue.spent_until)
        if job.asked.keys() - queue.nominal.keys() or job.amount > group.real.most(queue.name):
            return Reason(Code.EXCEEDS_MAXIMUM, queue.name, job.asked, quota=queue.nominal, most=self._most(queue))
        if queue.machine and job.amount > queue.machine.slots:
            return Reason(Code.MACHINE_TOO_SMALL, queue.name, job.asked, slots=queue.machine.slots)
        if queue.user_limit is not None and job.amount > (left := queue.user_limit - self._held_by(job)):
            code = Code.USER_LIMIT if job.amount <= queue.user_limit else Code.EXCEEDS_USER_LIMIT
            (resource,) = queue.nominal
            return Reason(code, queue.name, job.asked, {resource: max(0, left)}, {resource: queue.user_limit})
        if group.fleet and not group.fleet.could_fit(job.gang):
            return _no_nodes(Code.NO_NODE_SHAPE, job, group.fleet)
        for name in sorted(job.names):
            for taken in (queue.taken, group.taken):
                if name in taken:
                    return Reason(Code.NAME_IN_USE, queue.name, job=taken[name], name=name)
        return None

    def _held_by(self, job: Pending) -> int:
        """Return how much the other jobs of a job's user hold in its queue."""
        return self._by_user[job.queue].get(job.user, 0)

    def _decide(self, job: Pending, line: _Line) -> Decision:
        queue, ahead, is_head = self.queues[job.queue], line.ahead, not line.ahead
        if ahead and queue.policy is Policy.STRICT:
            return Wait(job.job, Reason(Code.BEHIND, queue.name, ahead=len(ahead), job=ahead[0]))
        if job.amount > self.available(queue.name):
            waits = Wait(job.job, self._lacking(job, queue, ahead=len(ahead)), is_head=is_head)
            return self._make_room(waits, job, queue) if is_head or self._may_reclaim(job, queue) else waits
        if (machine := self._machine(queue)) and (busy := _no_room(job, queue, machine)):
            return Wait(job.job, busy, is_head=is_head)
        if why := self._no_place(job, queue):
            waits = Wait(job.job, replace(why, ahead=len(ahead)), is_head=is_head)
            return (
                self._make_room(waits, job, queue)
                if is_head and why.code in (Code.NO_NODES, Code.FRAGMENTED)
                else waits
            )
        if ahead and queue.policy is Policy.BACKFILL and not passes(job, line.reserved, now=self.now):
            at = line.reserved.at if line.reserved else None
            code = Code.BEHIND if at is None else Code.RESERVED_FOR  # nobody knows when the first one starts
            return Wait(job.job, Reason(code, queue.name, job.asked, ahead=len(ahead), job=ahead[0], at=at))
        return self._after_first(job, is_head=is_head) or Admit(job.job)

    def _no_place(self, job: Pending, queue: QueueState) -> Reason | None:
        """Return why the nodes have no room for a job now."""
        fleet = (group := self._groups[queue.name]).fleet
        if fleet is None or queue.fleet is None or not job.gang:
            return None
        if not fleet.fits(job.gang):
            return _no_nodes(Code.FRAGMENTED if fleet.free >= job.amount else Code.NO_NODES, job, fleet)
        if group.planned_fleet and group.planned_fleet.harms(job.gang, (one.gang for one in group.comes)):
            each, replicas = job.gang[0]
            return Reason(
                Code.RESERVED_FOR, queue.name, job.asked, job=group.comes[0].job, each=each, replicas=replicas
            )
        least, holder = queue.fleet.refused.get(job.shape, (0, 0))
        if self._is_now and holder and job.gang[0][0] >= least:
            return Reason(Code.NO_PLACE, queue.name, job.asked, job=holder)
        return None

    def _may_reclaim(self, job: Pending, queue: QueueState) -> bool:
        """Whether a job that is not the first takes back what is its own: where nobody waits for those before it."""
        group = self._groups[queue.name]
        is_free = queue.policy is Policy.BEST_EFFORT and queue.name not in group.kept
        return is_free and preempt.is_entitled(job, group.planned)

    def _after_first(self, job: Pending, *, is_head: bool) -> Wait | None:
        """Let nobody borrow what the first job of another queue waits to borrow, unless that cannot delay it."""
        group = self._groups[job.queue]
        first = group.first
        if first is None or first.job.queue == job.queue or passes(job, first.reserved, now=self.now):
            return None
        if preempt.borrows(job, group.planned) < preempt.borrows(first.job, group.planned):
            return None
        at = first.reserved.at if first.reserved else None
        return Wait(job.job, Reason(Code.RESERVED_FOR, job.queue, job.asked, job=first.job.job, at=at), is_head=is_head)

    def _reserve(self, job: Pending, line: _Line) -> None:
        """Find when the head of a queue can start at the latest."""
        queue, group = self.queues[job.queue], self._groups[job.queue]
        is_first = (
            group.first is None
            and len(self._shared(job.queue)) > 1
            and job.queue not in group.kept
            and queue.policy is not Policy.BEST_EFFORT
            and preempt.may_hold(job, group.planned, below=False)
        )
        if not is_first and queue.policy is not Policy.BACKFILL:
            return
        reserved = self._reserved(job)
        if queue.policy is Policy.BACKFILL:
            line.reserved = reserved
        if is_first:
            group.first = _First(job, reserved)

    def _reserved(self, job: Pending) -> Reservation | None:
        group = self._groups[job.queue]
        holding = (one for held in group.holding.values() for one in held)
        return reserve(job, group.real, holding, now=self.now, fleet=group.fleet)

    def _make_room(self, waits: Wait, job: Pending, queue: QueueState) -> Wait:
        """Preempt for the head of a queue where it has a right to that, and keep for it what it gets."""
        group = self._groups[queue.name]
        chosen: Sequence[Holding] = ()
        has_room = job.amount <= group.planned.available(queue.name) and group.has_nodes(job)
        if not has_room:
            chosen = preempt.victims(
                job,
                group.planned,
                group.holding,
                by_priority=queue.preempts,
                spared=group.new,
                fleet=group.planned_fleet,
            )
            for one in chosen:
                group.leaves(one)
                held = group.holding[one.queue]
                held[held.index(one)] = replace(one, is_leaving=True, is_preempted=True)
        has_right = preempt.is_entitled(job, group.planned) and preempt.may_hold(job, group.planned, below=True)
        if group.planned_fleet is not None and (has_room or chosen):
            group.planned_fleet.take(job.job, job.gang)
            group.comes.append(job)
        if has_room or chosen or has_right:
            group.planned.use(queue.name, job.amount)
            group.kept[queue.name] = job.amount
        is_for_quota = waits.why.code is Code.WAITING_FOR_QUOTA
        lacks = job.amount - (sum(waits.why.free.values()) if is_for_quota else 0)
        jobs = tuple(sorted(one.job for one in chosen)) or (_awaited(group, lacks) if has_room else ())
        group.awaited.update(jobs)
        if not jobs:
            return waits
        group.firmly.add(queue.name)
        return replace(waits, why=replace(waits.why, code=Code.PREEMPTING, jobs=jobs), victims=jobs if chosen else ())

    def _lacking(self, job: Pending, queue: QueueState, *, ahead: int) -> Reason:
        (resource,) = queue.nominal
        group, most = self._groups[queue.name], self._most(queue)
        free = {resource: max(0, self.available(queue.name))}
        lent = group.real.lent(queue.name) if most else 0
        return Reason(
            Code.WAITING_FOR_QUOTA, queue.name, job.asked, free, queue.nominal, ahead=ahead, most=most, lent=lent
        )

    def _most(self, queue: QueueState) -> dict[str, int]:
        """Return what a queue that shares quota may hold at most; empty for others, whose quota says it."""
        (resource,) = queue.nominal
        shared = self._shared(queue.name)
        return {resource: self._groups[queue.name].real.most(queue.name)} if len(shared) > 1 else {}

    def _shared(self, queue: str) -> Mapping[str, Node]:
        return self._groups[queue].real.nodes

    def _take(self, job: Pending, line: _Line) -> None:
        group = self._groups[job.queue]
        if line.reserved is not None:
            line.reserved = without(job, line.reserved, now=self.now)
        if group.first is not None and group.first.reserved is not None:
            group.first.reserved = without(job, group.first.reserved, now=self.now)
        group.real.use(job.queue, job.amount)
        group.planned.use(job.queue, job.amount)
        for fleet in group.fleets():
            fleet.take(job.job, job.gang)
        self._by_user[job.queue][job.user] = self._held_by(job) + job.amount
        group.admitted += job.amount
        group.new.add(job.job)
        group.taken.update(dict.fromkeys(job.names, job.job))
        ends_by = None if job.longest is None else self.now + job.longest
        held = Holding(job.job, job.asked, ends_by, job.expected, job.queue, job.priority, user=job.user)
        group.holding.setdefault(job.queue, []).append(held)

    def _machine(self, queue: QueueState) -> Machine | None:
        more = self._groups[queue.name].admitted
        machine = queue.machine
        return machine and replace(machine, used=max(0, machine.used + more), free=max(0, machine.free - more))

    def _claims(self, job: Pending) -> bool:
        """Whether others were preempted for a job: it comes first, also in its queue, or what they gave back goes elsewhere."""
        return job.is_claiming or job.job in self._claiming

    def _waits_anyway(self, job: Pending) -> bool:
        """Whether a job waits, and changes nothing for others, whenever its turn comes."""
        policy = self.queues[job.queue].policy
        if policy is Policy.BEST_EFFORT or not self._lines[job.queue].ahead:
            return False
        return policy is Policy.STRICT or job.amount > self._groups[job.queue].real.available(job.queue)

    def _turn(self, job: Pending) -> _Turn:
        """Return the place of a queue's next job among those of the others."""
        priority, submitted, number = job.order
        group = self._groups[job.queue]
        # An obstacle is not the others' use: it holds up nobody, and those behind it in its queue may come before others.
        is_first = self._claims(job) or self.obstacle(job)
        borrows = () if is_first else preempt.borrows(job, group.planned)
        return borrows, priority, group.real.share(job.queue), submitted, number


def _groups(queues: Mapping[str, QueueState], nodes: Mapping[str, Node]) -> Iterator[_Group]:
    """Yield the groups of queues that share quota."""

    def root(name: str) -> str:
        while name in nodes and (parent := nodes[name].parent) is not None:
            name = parent
        return name

    members: dict[str, list[QueueState]] = {}
    for queue in queues.values():
        members.setdefault(root(queue.name), []).append(queue)
    shared: dict[str, list[Node]] = {}
    for node in nodes.values():
        shared.setdefault(root(node.name), []).append(node)
    for top, found in members.items():
        own = shared.get(top) or [Node(top, nominal=sum(found[0].nominal.values()))]
        used = {queue.name: sum(queue.used.values()) for queue in found}
        holding = {
            queue.name: [one if one.queue == queue.name else replace(one, queue=queue.name) for one in queue.holding]
            for queue in found
        }
        group = _Group(Tree(own, used), Tree(own, used), holding)
        if (state := found[0].fleet) is not None:  # queues that share quota are of one cluster
            group.fleet, group.planned_fleet = Fleet(state), Fleet(state)
        for one in (one for held in holding.values() for one in held if one.is_leaving):
            group.leaves(one)
        yield group


def _awaited(group: _Group, lacks: int) -> tuple[int, ...]:
    """Return the preempted jobs that a head waits for: enough of those that no other one was told to wait for."""
    found = list[Holding]()
    for one in sorted((one for held in group.holding.values() for one in held), key=lambda one: one.job):
        if one.is_preempted and one.job not in group.awaited and sum(held.amount for held in found) < lacks:
            found.append(one)
    return tuple(one.job for one in found)


def _no_nodes(code: Code, job: Pending, fleet: Fleet) -> Reason:
    """Return why nodes have no room for a job: for which of its replicas, and what would fit."""
    is_empty = code is Code.NO_NODE_SHAPE
    each, replicas, room = fleet.lacking(job.gang, is_empty=is_empty)
    (resource,) = job.asked
    free = {} if is_empty else {resource: fleet.free}
    largest = fleet.largest_node if is_empty else fleet.largest
    nearest = fleet.nearest(job.gang) if code is Code.FRAGMENTED and len(job.gang) == 1 else None
    return Reason(
        code, job.queue, job.asked, free, replicas=replicas, each=each, room=room, largest=largest, nearest=nearest
    )


def _no_room(job: Pending, queue: QueueState, machine: Machine) -> Reason | None:
    """Return why the machine cannot take a job now."""
    (resource,), count = job.asked.keys(), job.amount
    if machine.used + count > machine.slots:
        left = {resource: max(0, machine.slots - machine.used)}
        return Reason(Code.MACHINE_BUSY, queue.name, job.asked, left, slots=machine.slots)
    if machine.used and count > machine.free:
        return Reason(Code.MACHINE_BUSY, queue.name, job.asked, {resource: machine.free})
    return None
