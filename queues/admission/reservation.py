"""When the first waiting job of a queue can start at the latest, by the deadlines of those that hold its quota. Pure.

As in EASY backfilling (Lifka, 1995): another job may start before it, if it ends before that moment, or if at that
moment there is enough for both.
"""

from dataclasses import dataclass, replace

from ..resources import Resources, add, fits, subtract
from .snapshot import Pending, QueueState


@dataclass(frozen=True)
class Reservation:
    """`at`: when the first job can start at the latest; `spare`: what is left beside it then."""

    at: float
    spare: Resources


def reserve(head: Pending, queue: QueueState, *, now: float) -> Reservation | None:
    """Return the reservation of the first job; None where it waits for jobs without a deadline."""
    free = queue.free
    if fits(head.asked, free):
        return Reservation(now, subtract(free, head.asked))
    ends = sorted((one.ends_by, one.job, one.takes) for one in queue.holding if one.ends_by is not None)
    for at, _, takes in ends:
        free = add(free, takes)
        if fits(head.asked, free):
            return Reservation(max(at, now), subtract(free, head.asked))
    return None


def passes(job: Pending, reserved: Reservation | None, *, now: float) -> bool:
    """Whether a job that fits now cannot delay the first one. Without a reservation nobody knows, so no."""
    if reserved is None:
        return False
    return _ends_before(job, reserved, now) or fits(job.asked, reserved.spare)


def without(job: Pending, reserved: Reservation, *, now: float) -> Reservation:
    """Return the reservation once a job went ahead: what still runs at its moment is not spare any more."""
    if _ends_before(job, reserved, now):
        return reserved
    return replace(reserved, spare=subtract(reserved.spare, job.asked))


def _ends_before(job: Pending, reserved: Reservation, now: float) -> bool:
    return job.longest is not None and now + job.longest <= reserved.at
