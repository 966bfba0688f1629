"""Why a job waits, behind how many, for whom, and when it may start. Read when asked for, and never stored."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone

from jobs.models import Job
from queues import admission
from queues.admission import Code, Range, Reason, Unknown, Wait
from queues.models import Queue

from . import holding, snapshot

HOLDERS = 5  # that are named


@dataclass(frozen=True)
class Holder:
    """A job that holds quota of the queue. `ends`: when it probably gives it back; None where nothing is known."""

    job: Job
    ends: tuple[datetime, datetime] | None


@dataclass(frozen=True)
class Waiting:
    """`position` counts from 1; None for a job that waits for somebody's decision. `starts`: when it may start."""

    reason: Reason | None  # None: it would be admitted now
    position: int | None
    starts: tuple[datetime, datetime] | None
    unknown: tuple[int, ...]  # jobs of which nothing is known, and on which its start depends
    holders: tuple[Holder, ...] = ()

    @property
    def sentence(self) -> str:
        return "" if self.reason is None else admission.words(self.reason)


def of_job(job: Job) -> Waiting | None:
    """Return why a queued job waits; None if it does not wait any more, or is too far behind to be looked at."""
    now = timezone.now()
    state, pending, holders = _foreseen(job.queue, now)
    own = next((one for one in pending if one.job == job.pk), None)
    before = [one for one in pending if own and one.order <= own.order]  # nothing behind it changes its turn
    return _explained(state, before, holders, now).get(job.pk)


def of_queue(queue: Queue) -> dict[int, Waiting]:
    """Return the same for the first jobs that wait in a queue, by their ids, in order."""
    now = timezone.now()
    state, pending, holders = _foreseen(queue, now)
    return _explained(state, pending, holders, now)


def of_new(job: Job) -> Waiting:
    """Return the same for a job that is not submitted yet: `job` is its row, unsaved."""
    now = timezone.now()
    state, pending, holders = _foreseen(job.queue, now, also=[job])
    return _explained(state, pending, holders, now)[0]


def _foreseen(
    queue: Queue, now: datetime, also: Iterable[Job] = ()
) -> tuple[admission.QueueState, list[admission.Pending], list[Job]]:
    ended = holding.ended_jobs(queue)
    holders = list(Job.objects.holding_quota().filter(queue=queue).select_related("user").order_by("-slots", "id"))
    jobs = [*snapshot.waiting(queue), *also]
    state, pending = snapshot.snapshot(queue, jobs, held=holding.foreseen(holders, queue, ended, now=now))
    by_id = {job.pk or 0: job for job in jobs}
    return state, [replace(one, expected=holding.within(by_id[one.job], ended)) for one in pending], holders


def _explained(
    state: admission.QueueState, pending: list[admission.Pending], holders: list[Job], now: datetime
) -> dict[int, Waiting]:
    at = now.timestamp()
    decisions = admission.decide([state], pending, now=at)
    starts = admission.forecast(state, pending, now=at)
    remaining = {one.job: one.remaining for one in state.holding}
    named = tuple(Holder(job, _moments(remaining[job.pk], now)) for job in holders[:HOLDERS])
    found, position = dict[int, Waiting](), 0
    for one in decisions:
        reason = one.why if isinstance(one, Wait) else None
        is_in_line = reason is None or reason.code not in ASIDE
        position += is_in_line
        waits_for_quota = reason is not None and reason.code in FOR_QUOTA
        start = starts.get(one.job)
        found[one.job] = Waiting(
            reason,
            position if is_in_line else None,
            _moments(start, now) if isinstance(start, Range) else None,
            start.jobs if isinstance(start, Unknown) else (),
            named if waits_for_quota else (),
        )
    return found


ASIDE = frozenset({Code.ON_HOLD, Code.EXCEEDS_MAXIMUM, Code.MACHINE_TOO_SMALL})
FOR_QUOTA = frozenset({Code.BEHIND, Code.WAITING_FOR_QUOTA, Code.RESERVED_FOR})


def _moments(one: Range | None, now: datetime) -> tuple[datetime, datetime] | None:
    return None if one is None else (now + timedelta(seconds=one.least), now + timedelta(seconds=one.most))
