"""When the first waiting job of a queue can start at the latest, by the deadlines of those that hold its quota. Pure.

As in EASY backfilling (Lifka, 1995): another job may start before it, if it ends before that moment, or if at that
moment there is enough for both.
"""

from dataclasses import dataclass

from ..resources import Resources, add, fits, subtract
from .snapshot import Pending, QueueState


@dataclass(frozen=True)
class Reservation:
    """`at`: when the job can start at the latest; `spare`: what is left beside it then."""

    job: int
    at: float
    spare: Resources


def reserve(head: Pending, queue: QueueState, *, now: float) -> Reservation | None:
    """Return the reservation of the first job; None where it waits for jobs without a deadline."""
    free = queue.free
    if fits(head.asked, free):
        return Reservation(head.job, now, subtract(free, head.asked))
    ends = sorted((one.ends_by, one.job, one.takes) for one in queue.holding if one.ends_by is not None)
    for at, _, takes in ends:
        free = add(free, takes)
        if fits(head.asked, free):
            return Reservation(head.job, max(at, now), subtract(free, head.asked))
    return None


def passes(job: Pending, reserved: Reservation | None, *, now: float) -> bool:
    """Whether a job that fits now cannot delay the first one. Without a reservation nobody knows, so no."""
    if reserved is None:
        return False
    ends_before = job.longest is not None and now + job.longest <= reserved.at
    return ends_before or fits(job.asked, reserved.spare)
