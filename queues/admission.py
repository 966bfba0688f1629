"""Decide admission: a snapshot of queues and pending jobs in, one decision per pending job out. Pure.

First come, first served within one queue's quota: a job that does not fit makes those behind it wait, so that a large
job cannot be starved by small ones. A job that waits for a name takes no quota and holds up nobody, nor does one that is
larger than the whole quota: it can never start.
All arithmetic runs on the snapshot; all writes come after.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .resources import Resources, add, describe, fits, subtract


@dataclass(frozen=True)
class Machine:
    """What the one machine of a queue's cluster bears, in slots of all its queues.

    `free`: for how many more there is memory now. Nobody waits for that while nothing runs: what is missing then is
    taken by other programs.
    """

    slots: int
    used: int
    free: int


@dataclass(frozen=True)
class QueueState:
    """One queue: its quota, and what its jobs hold now."""

    name: str
    nominal: Resources
    used: Resources = field(default_factory=dict)
    is_open: bool = True
    taken: Mapping[str, int] = field(default_factory=dict)  # names that one job at a time may have, and which has it
    machine: Machine | None = None

    @property
    def free(self) -> Resources:
        return subtract(self.nominal, self.used)


@dataclass(frozen=True)
class Pending:
    """One waiting job. `order` sorts within a queue: higher priority first, then the older one."""

    job: int
    queue: str
    asked: Resources
    priority: int = 0
    submitted: float = 0.0
    names: frozenset[str] = frozenset()  # that no other running job of its cluster may have

    @property
    def order(self) -> tuple[int, float, int]:
        return (-self.priority, self.submitted, self.job)


@dataclass(frozen=True)
class Admit:
    job: int


@dataclass(frozen=True)
class Wait:
    """Not admitted now; `reason` is shown to the user."""

    job: int
    reason: str


Decision = Admit | Wait


def decide(queues: Iterable[QueueState], pending: Iterable[Pending]) -> list[Decision]:
    """Return one decision per pending job, in the order in which they were considered."""
    states = {queue.name: queue for queue in queues}
    ahead: dict[str, list[int]] = {}
    decisions: list[Decision] = []
    for job in sorted(pending, key=lambda one: one.order):
        queue = states[job.queue]
        blockers = ahead.setdefault(queue.name, [])
        decision = consider(job, queue, blockers)
        if isinstance(decision, Admit):
            taken = {**queue.taken, **dict.fromkeys(job.names, job.job)}
            machine = queue.machine and _with(queue.machine, sum(job.asked.values()))
            states[queue.name] = replace(queue, used=add(queue.used, job.asked), taken=taken, machine=machine)
        elif (
            fits(job.asked, queue.nominal) and not _is_beyond(job, queue.machine) and not job.names & queue.taken.keys()
        ):
            blockers.append(job.job)
        decisions.append(decision)
    return decisions


def consider(job: Pending, queue: QueueState, blockers: list[int]) -> Decision:
    """Decide on one job in its queue, given the jobs of that queue that already have to wait."""
    if not queue.is_open:
        return Wait(job.job, f"queue {queue.name} is closed; an administrator can open it")
    if not fits(job.asked, queue.nominal):
        return Wait(
            job.job,
            f"needs {describe(job.asked)}, but queue {queue.name} has {describe(queue.nominal)} in all; "
            "submit a smaller job, or ask for more quota",
        )
    if queue.machine and _is_beyond(job, queue.machine):
        return Wait(
            job.job,
            f"needs {describe(job.asked)}, but this machine has memory for {queue.machine.slots} in all; submit a smaller "
            "job, or ask for a larger machine",
        )
    for name in sorted(job.names & queue.taken.keys()):
        return Wait(
            job.job,
            f"{name} is in use by job {queue.taken[name]}, and would be confused with it; starts when that job has ended, "
            "or resubmit it with another name",
        )
    if blockers:
        return Wait(job.job, f"{len(blockers)} ahead in queue {queue.name}; job {blockers[0]} is first")
    if not fits(job.asked, queue.free):
        return Wait(
            job.job,
            f"needs {describe(job.asked)}; queue {queue.name} has {describe(_positive(queue.free))} free "
            f"of {describe(queue.nominal)}",
        )
    if queue.machine and (reason := _no_room(job, queue.machine)):
        return Wait(job.job, reason)
    return Admit(job.job)


def _is_beyond(job: Pending, machine: Machine | None) -> bool:
    return machine is not None and sum(job.asked.values()) > machine.slots


def _no_room(job: Pending, machine: Machine) -> str:
    """Return why the machine cannot take a job now, "" where it can."""
    count = sum(job.asked.values())
    if machine.used + count > machine.slots:
        left = max(0, machine.slots - machine.used)
        return f"needs {describe(job.asked)}; {left} of the {machine.slots} that this machine has memory for are free"
    if machine.used and count > machine.free:
        return f"needs {describe(job.asked)}; this machine has free memory for {machine.free} more now"
    return ""


def _with(machine: Machine, count: int) -> Machine:
    return replace(machine, used=machine.used + count, free=max(0, machine.free - count))


def _positive(resources: Resources) -> Resources:
    return {name: max(0, count) for name, count in resources.items()}
