"""When each waiting job may start, as a range: what is known of the jobs before it, played forward twice. Pure.

Once everything takes as little as it probably does, once as much; a job's own start lies between. A job whose turn
depends on one of which nothing is known has no forecast, and the reason names that one.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..resources import subtract
from .decide import admit, obstacle
from .reasons import Code
from .snapshot import Holding, Pending, QueueState, Range

MOST = 100  # waiting jobs: further behind a range says little
NEVER = frozenset({Code.EXCEEDS_MAXIMUM, Code.MACHINE_TOO_SMALL})


@dataclass(frozen=True)
class Unknown:
    """No forecast. `jobs`: those of which nothing is known that it waits for; empty: it waits for somebody's decision."""

    jobs: tuple[int, ...] = ()


Forecast = Range | Unknown  # a range of seconds from now


def forecast(queue: QueueState, pending: Iterable[Pending], *, now: float) -> dict[int, Forecast]:
    """Return when each job of one queue may start. Those that never will, as things are, or wait too far behind, are left out."""
    waiting = sorted((one for one in pending if one.queue == queue.name), key=lambda one: one.order)[:MOST]
    early, late = (_play(queue, waiting, now=now, is_late=is_late) for is_late in (False, True))
    found: dict[int, Forecast] = {}
    for job in waiting:
        why = obstacle(job, queue)
        if why and why.code in NEVER:
            continue
        if job.job in early and job.job in late:
            first, last = sorted((early[job.job] - now, late[job.job] - now))
            found[job.job] = Range(first, last)
        else:
            found[job.job] = Unknown(_unknown(queue, waiting, job))
    return found


def _play(queue: QueueState, waiting: Sequence[Pending], *, now: float, is_late: bool) -> dict[int, float]:
    """Return when each job starts if everything takes its least, or its most; without those that wait for ever."""
    ends = [(end, one.job) for one in queue.holding if (end := _end(one, now, is_late=is_late)) is not None]
    heapq.heapify(ends)
    left, starts, at = list(waiting), dict[int, float](), now
    while left:
        begun, queue = admit(queue, left, now=at)
        for job in begun:
            starts[job.job] = at
            if job.expected is not None:
                heapq.heappush(ends, (at + _seconds(job.expected, is_late=is_late), job.job))
        if begun:
            gone = {one.job for one in begun}
            left = [one for one in left if one.job not in gone]
        if not ends:
            return starts
        at, ended = heapq.heappop(ends)
        queue = _without(queue, ended)
    return starts


def _end(one: Holding, now: float, *, is_late: bool) -> float | None:
    """Return when a job gives its quota back; None where nothing is known, as its deadline is where `remaining` is."""
    if one.remaining is None:
        return None
    probably = now + _seconds(one.remaining, is_late=is_late)
    return probably if one.ends_by is None else min(probably, max(one.ends_by, now))


def _seconds(taken: Range, *, is_late: bool) -> float:
    return taken.most if is_late else taken.least


def _without(queue: QueueState, job: int) -> QueueState:
    gone = next(one for one in queue.holding if one.job == job)
    taken = {name: holder for name, holder in queue.taken.items() if holder != job}
    machine = queue.machine
    if machine is not None:
        count = sum(gone.takes.values())
        machine = replace(machine, used=max(0, machine.used - count), free=machine.free + count)
    return replace(
        queue, used=subtract(queue.used, gone.takes), taken=taken, machine=machine,
        holding=tuple(one for one in queue.holding if one.job != job),
    )  # fmt: skip


def _unknown(queue: QueueState, waiting: Sequence[Pending], job: Pending) -> tuple[int, ...]:
    """Return the jobs before this one of which nothing is known."""
    if not queue.is_open:
        return ()
    running = [one.job for one in queue.holding if one.remaining is None]
    before = [one.job for one in waiting if one.order < job.order and one.expected is None]
    return (*running, *before)
