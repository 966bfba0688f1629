"""When each waiting job may start, as a range: what is known of the jobs before it, played forward twice. Pure.

Once everything takes as little as it probably does, once as much; a job's own start lies between. A job whose turn
depends on one of which nothing is known has no forecast, and the reason names that one.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .cohort import Node
from .decide import Admit, Round
from .reasons import Code
from .snapshot import Holding, Pending, Policy, QueueState, Range

MOST = 100  # waiting jobs: further behind a range says little
NEVER = frozenset({Code.EXCEEDS_MAXIMUM, Code.EXCEEDS_USER_LIMIT, Code.MACHINE_TOO_SMALL, Code.NO_NODE_SHAPE})
LEAVING_SECONDS = 60.0  # what a preempted job may take to be gone
# Of the last moment of a start, where jobs that come meanwhile may pass those that wait (measured by bench/forecast.py).
PASSED = 1.2


@dataclass(frozen=True)
class Unknown:
    """No forecast. `jobs`: those of which nothing is known that it waits for; empty: it waits for somebody's decision."""

    jobs: tuple[int, ...] = ()


Forecast = Range | Unknown  # a range of seconds from now


def forecast(
    queues: Sequence[QueueState], pending: Iterable[Pending], *, nodes: Sequence[Node] = (), now: float, of: str = ""
) -> dict[int, Forecast]:
    """Return when each job may start. Those that never will, as things are, or wait too far behind, are left out.

    `queues`: those that share quota, with the jobs that wait in them; `of`: the queue that is asked about, if it is one.
    """
    ordered = sorted(pending, key=lambda one: one.order)
    own, others = ([one for one in ordered if (one.queue == of) is is_own][:MOST] for is_own in (True, False))
    waiting = sorted([*own, *others], key=lambda one: one.order)
    early, late = (_play(queues, nodes, waiting, now=now, is_late=is_late) for is_late in (False, True))
    judge = Round(queues, nodes, now=now)
    strict = {queue.name for queue in queues if queue.policy is Policy.STRICT}
    obstacles = {job.job: judge.obstacle(job) for job in waiting}
    firsts = {job.queue: job.job for job in reversed(waiting) if not obstacles[job.job]}
    found: dict[int, Forecast] = {}
    for job in waiting:
        why = obstacles[job.job]
        if why and why.code in NEVER:
            continue
        if job.job in early and job.job in late:
            first, last = sorted((early[job.job] - now, late[job.job] - now))
            found[job.job] = Range(first, last if job.queue in strict else _passed(last, job, judge, firsts, now=now))
        else:
            found[job.job] = Unknown(_unknown(queues, waiting, job))
    return found


def _passed(last: float, job: Pending, judge: Round, firsts: Mapping[str, int], *, now: float) -> float:
    """Return when a job starts at the latest if others pass it; the first of its queue is passed by none that delays it."""
    bound = judge.latest(job) if firsts.get(job.queue) == job.job else None
    return last * PASSED if bound is None else min(last * PASSED, max(last, bound - now))


def _play(
    queues: Sequence[QueueState], nodes: Sequence[Node], waiting: Sequence[Pending], *, now: float, is_late: bool
) -> dict[int, float]:
    """Return when each job starts if everything takes its least, or its most; without those that wait for ever."""
    ends = [
        (end, one.job, queue.name)
        for queue in queues
        for one in queue.holding
        if (end := _end(one, now, is_late=is_late)) is not None
    ]
    heapq.heapify(ends)
    state, of = Round(queues, nodes, now=now), {one.job: queue.name for queue in queues for one in queue.holding}
    left, starts, at, gone = list(waiting), dict[int, float](), now, set[int]()
    while left:
        for job, decision in state.admits(state.in_turn(left)):
            if isinstance(decision, Admit):
                starts[job.job], of[job.job] = at, job.queue
                if job.expected is not None:
                    heapq.heappush(ends, (at + _seconds(job.expected, is_late=is_late), job.job, job.queue))
            else:
                leaves = at + (LEAVING_SECONDS if is_late else 0.0)
                for victim in decision.victims:
                    heapq.heappush(ends, (leaves, victim, of[victim]))
        left = [one for one in left if one.job not in starts]
        while ends and ends[0][1] in gone:
            heapq.heappop(ends)  # a victim that was to end later
        if not ends:
            return starts
        at, ended, queue = heapq.heappop(ends)
        gone.add(ended)
        state.release(ended, queue)
        state.begin_again(now=at)
    return starts


def _end(one: Holding, now: float, *, is_late: bool) -> float | None:
    """Return when a job gives its quota back; None where nothing is known, as its deadline is where `remaining` is."""
    if one.remaining is None:
        return None
    probably = now + _seconds(one.remaining, is_late=is_late)
    return probably if one.ends_by is None else min(probably, max(one.ends_by, now))


def _seconds(taken: Range, *, is_late: bool) -> float:
    return taken.most if is_late else taken.least


def _unknown(queues: Sequence[QueueState], waiting: Sequence[Pending], job: Pending) -> tuple[int, ...]:
    """Return the jobs before this one of which nothing is known."""
    own = next(queue for queue in queues if queue.name == job.queue)
    if not own.is_open or own.spent_until is not None:
        return ()
    running = [one.job for queue in queues for one in queue.holding if one.remaining is None]
    before = [one.job for one in waiting if one.order < job.order and one.expected is None]
    return (*running, *before)
