"""Decide admission: one decision for each waiting job. Pure.

Jobs are considered in the order of their queue. Of those that do not fit now the first is the *head*; whether jobs behind
it may start before it is the queue's policy. A job that waits for a name takes no quota and holds up nobody, nor does one
that is larger than the whole quota: it can never start. All arithmetic runs on the snapshot; all writes come after.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..resources import add, fits
from .reasons import Code, Reason, words
from .reservation import Reservation, passes, reserve, without
from .snapshot import Holding, Machine, Pending, Policy, QueueState


@dataclass(frozen=True)
class Admit:
    job: int


@dataclass(frozen=True)
class Wait:
    """Not admitted now. `is_head`: the first of its queue that waits for quota or the machine."""

    job: int
    why: Reason
    is_head: bool = False

    @property
    def reason(self) -> str:
        return words(self.why)


Decision = Admit | Wait


@dataclass
class _Line:
    """The jobs of one queue that already have to wait, in this pass."""

    ahead: list[int] = field(default_factory=list)
    reserved: Reservation | None = None


def decide(queues: Iterable[QueueState], pending: Iterable[Pending], *, now: float = 0.0) -> list[Decision]:
    """Return one decision per pending job, in the order in which they were considered."""
    states = {queue.name: queue for queue in queues}
    lines = {name: _Line() for name in states}
    decisions: list[Decision] = []
    for job in sorted(pending, key=lambda one: one.order):
        decision, states[job.queue] = _step(job, states[job.queue], lines[job.queue], now=now)
        decisions.append(decision)
    return decisions


def admit(queue: QueueState, ordered: Iterable[Pending], *, now: float) -> tuple[list[Pending], QueueState]:
    """Return the jobs of one queue that `decide` admits, of jobs that are in order, and the queue with them.

    It looks no further than needed.
    """
    line, found = _Line(), list[Pending]()
    for job in ordered:
        if line.ahead and (queue.policy is Policy.STRICT or not any(count > 0 for count in queue.free.values())):
            break
        decision, queue = _step(job, queue, line, now=now)
        if isinstance(decision, Admit):
            found.append(job)
    return found, queue


def _step(job: Pending, queue: QueueState, line: _Line, *, now: float) -> tuple[Decision, QueueState]:
    """Decide on the next job of a queue; return also the queue, with it if it was admitted."""
    decision = _consider(job, queue, line, now=now)
    if isinstance(decision, Admit):
        if line.reserved is not None:
            line.reserved = without(job, line.reserved, now=now)
        return decision, _with(job, queue, now=now)
    if decision.why.code not in _ASIDE:
        if decision.is_head and queue.policy is Policy.BACKFILL:
            line.reserved = reserve(job, queue, now=now)
        line.ahead.append(job.job)
    return decision, queue


# Who waits for one of these holds up nobody.
_ASIDE = frozenset({Code.ON_HOLD, Code.EXCEEDS_MAXIMUM, Code.MACHINE_TOO_SMALL, Code.NAME_IN_USE})


def _with(job: Pending, queue: QueueState, *, now: float) -> QueueState:
    """Return the queue with one more job in it."""
    taken = {**queue.taken, **dict.fromkeys(job.names, job.job)}
    ends_by = None if job.longest is None else now + job.longest
    holding = (*queue.holding, Holding(job.job, job.asked, ends_by, job.expected))
    machine = queue.machine and _filled(queue.machine, sum(job.asked.values()))
    return replace(queue, used=add(queue.used, job.asked), taken=taken, machine=machine, holding=holding)


def _consider(job: Pending, queue: QueueState, line: _Line, *, now: float) -> Decision:
    if why := obstacle(job, queue):
        return Wait(job.job, why)
    if line.ahead and queue.policy is Policy.STRICT:
        return Wait(job.job, Reason(Code.BEHIND, queue.name, ahead=len(line.ahead), job=line.ahead[0]))
    if not fits(job.asked, queue.free):
        free = {name: max(0, count) for name, count in queue.free.items()}
        lacking = Reason(Code.WAITING_FOR_QUOTA, queue.name, job.asked, free, queue.nominal, ahead=len(line.ahead))
        return Wait(job.job, lacking, is_head=not line.ahead)
    if queue.machine and (busy := _no_room(job, queue, queue.machine)):
        return Wait(job.job, busy, is_head=not line.ahead)
    if line.ahead and queue.policy is Policy.BACKFILL and not passes(job, line.reserved, now=now):
        at = line.reserved.at if line.reserved else None
        code = Code.BEHIND if at is None else Code.RESERVED_FOR  # nobody knows when the first one starts
        return Wait(job.job, Reason(code, queue.name, job.asked, ahead=len(line.ahead), job=line.ahead[0], at=at))
    return Admit(job.job)


def obstacle(job: Pending, queue: QueueState) -> Reason | None:
    """Return what keeps a job from starting, however much of the quota is free."""
    if not queue.is_open:
        return Reason(Code.ON_HOLD, queue.name)
    if not fits(job.asked, queue.nominal):
        return Reason(Code.EXCEEDS_MAXIMUM, queue.name, job.asked, quota=queue.nominal)
    if queue.machine and sum(job.asked.values()) > queue.machine.slots:
        return Reason(Code.MACHINE_TOO_SMALL, queue.name, job.asked, slots=queue.machine.slots)
    for name in sorted(job.names & queue.taken.keys()):
        return Reason(Code.NAME_IN_USE, queue.name, job=queue.taken[name], name=name)
    return None


def _no_room(job: Pending, queue: QueueState, machine: Machine) -> Reason | None:
    """Return why the machine cannot take a job now."""
    (resource,), count = job.asked.keys(), sum(job.asked.values())
    if machine.used + count > machine.slots:
        left = {resource: max(0, machine.slots - machine.used)}
        return Reason(Code.MACHINE_BUSY, queue.name, job.asked, left, slots=machine.slots)
    if machine.used and count > machine.free:
        return Reason(Code.MACHINE_BUSY, queue.name, job.asked, {resource: machine.free})
    return None


def _filled(machine: Machine, count: int) -> Machine:
    return replace(machine, used=machine.used + count, free=max(0, machine.free - count))
