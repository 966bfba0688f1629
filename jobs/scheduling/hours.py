"""What jobs used of their queues: hours times slots, by team, queue, user or job, and whether a queue's month is spent.

A sum over attempts and never a counter, from the launch of each to the moment when its replicas were gone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from common.db import sql
from queues.models import Queue

BY = ("team", "queue", "user", "job")
_HOURS = sql.load("jobs/sql/slot_hours.sql")


@dataclass(frozen=True)
class Used:
    """In hours times slots. `lost`: of failed attempts, what came after their last checkpoint; `starting`: of the others,
    until all their replicas ran; `idle`: of GPUs without use for five minutes, at least. `queue`, `user` and `job` are ids, and None where the sum is over them."""

    begins: datetime
    resource: str
    team: int
    queue: int | None
    user: int | None
    job: int | None
    name: str
    hours: float
    lost: float
    starting: float
    idle: float


def used(
    queues: Iterable[int], *, by: str, since: datetime, until: datetime, now: datetime, step: timedelta | None = None
) -> list[Used]:
    """Return what jobs of these queues used from `since` to `until`, by period of `step` and one of BY.

    None: one period. What is zero is left out.
    """
    if until <= since:
        return []
    span: dict[str, Any] = {
        "since": since,
        "until": until,
        "now": now,
        "seconds": (step or until - since).total_seconds(),
    }
    with connection.cursor() as cursor:
        cursor.execute(_HOURS, {**span, "queues": list(queues), "by": by})
        return [Used(*row[:7], *(float(one or 0) for one in row[7:])) for row in cursor.fetchall()]


def spent_until(queue: Queue, now: datetime) -> datetime | None:
    """Return when the next month begins, if a queue has spent the hours of this one; None if not, or without a budget."""
    if queue.budget_hours is None:
        return None
    begun = month_of(now)
    spent = sum(one.hours for one in used([queue.pk], by="queue", since=begun, until=now, now=now))
    return after(begun) if spent >= queue.budget_hours else None


def month_of(moment: datetime) -> datetime:
    """Return the beginning of a moment's month, in UTC."""
    return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def after(month: datetime) -> datetime:
    """Return the beginning of the next month."""
    return (month + timedelta(days=32)).replace(day=1)
