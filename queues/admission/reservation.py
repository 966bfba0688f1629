"""When the first waiting job of a queue can start at the latest, by the deadlines of those that hold its quota. Pure.

As in EASY backfilling (Lifka, 1995): another job may start before it, if it ends before that moment, or if at that
moment there is enough for both.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .cohort import Tree
from .fleet import Fleet
from .snapshot import Holding, Pending


@dataclass(frozen=True)
class Reservation:
    """`at`: when the first job can start at the latest; `spare`: what is left beside it then, `fleet`: and on which nodes."""

    at: float
    spare: int
    fleet: Fleet | None = None


def reserve(
    head: Pending, tree: Tree, holding: Iterable[Holding], *, now: float, fleet: Fleet | None = None
) -> Reservation | None:
    """Return the reservation of the first job; None where it waits for jobs without a deadline.

    `holding`: of all queues of the tree; `fleet`: the nodes, where they are known.
    """
    then = fleet and fleet.copy()
    if _fits(head, tree, then):
        return _with_head(head, tree, then, now)
    found, gone = None, list[Holding]()
    known = ((now if one.is_leaving else one.ends_by, one.job, one) for one in holding)
    for at, _, one in sorted((at, job, one) for at, job, one in known if at is not None):
        tree.use(one.queue, -one.amount)
        if then is not None:
            then.give_back(one.job)
        gone.append(one)
        if _fits(head, tree, then):
            found = _with_head(head, tree, then, max(at, now))
            break
    for one in gone:
        tree.use(one.queue, one.amount)
    return found


def _fits(head: Pending, tree: Tree, fleet: Fleet | None) -> bool:
    return head.amount <= tree.available(head.queue) and (fleet is None or fleet.fits(head.gang))


def _with_head(head: Pending, tree: Tree, fleet: Fleet | None, at: float) -> Reservation:
    if fleet is not None:
        fleet.take(head.job, head.gang)
    return Reservation(at, tree.available(head.queue) - head.amount, fleet)


def passes(job: Pending, reserved: Reservation | None, *, now: float) -> bool:
    """Whether a job that fits now cannot delay the first one. Without a reservation nobody knows, so no."""
    if reserved is None:
        return False
    is_beside = job.amount <= reserved.spare and (reserved.fleet is None or reserved.fleet.fits(job.gang))
    return is_beside or _ends_before(job, reserved, now)


def without(job: Pending, reserved: Reservation, *, now: float) -> Reservation:
    """Return the reservation once a job went ahead: what still runs at its moment is not spare any more."""
    if _ends_before(job, reserved, now):
        return reserved
    if reserved.fleet is not None:
        reserved.fleet.take(job.job, job.gang)
    return replace(reserved, spare=reserved.spare - job.amount)


def _ends_before(job: Pending, reserved: Reservation, now: float) -> bool:
    return job.longest is not None and now + job.longest <= reserved.at
