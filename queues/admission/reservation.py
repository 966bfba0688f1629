"""When the first waiting job of a queue can start at the latest, by the deadlines of those that hold its quota. Pure.

As in EASY backfilling (Lifka, 1995): another job may start before it, if it ends before that moment, or if at that
moment there is enough for both.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .cohort import Tree
from .snapshot import Holding, Pending


@dataclass(frozen=True)
class Reservation:
    """`at`: when the first job can start at the latest; `spare`: what is left beside it then."""

    at: float
    spare: int


def reserve(head: Pending, tree: Tree, holding: Iterable[Holding], *, now: float) -> Reservation | None:
    """Return the reservation of the first job; None where it waits for jobs without a deadline.

    `holding`: of all queues of the tree.
    """
    found, gone = None, list[Holding]()
    if (left := tree.available(head.queue) - head.amount) >= 0:
        return Reservation(now, left)
    known = ((now if one.is_leaving else one.ends_by, one.job, one) for one in holding)
    for at, _, one in sorted((at, job, one) for at, job, one in known if at is not None):
        tree.use(one.queue, -one.amount)
        gone.append(one)
        if (left := tree.available(head.queue) - head.amount) >= 0:
            found = Reservation(max(at, now), left)
            break
    for one in gone:
        tree.use(one.queue, one.amount)
    return found


def passes(job: Pending, reserved: Reservation | None, *, now: float) -> bool:
    """Whether a job that fits now cannot delay the first one. Without a reservation nobody knows, so no."""
    if reserved is None:
        return False
    return _ends_before(job, reserved, now) or job.amount <= reserved.spare


def without(job: Pending, reserved: Reservation, *, now: float) -> Reservation:
    """Return the reservation once a job went ahead: what still runs at its moment is not spare any more."""
    if _ends_before(job, reserved, now):
        return reserved
    return replace(reserved, spare=reserved.spare - job.amount)


def _ends_before(job: Pending, reserved: Reservation, now: float) -> bool:
    return job.longest is not None and now + job.longest <= reserved.at
