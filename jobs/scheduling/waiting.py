"""Why a job waits, behind how many, for whom, and when it may start. Read when asked for, and never stored."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone

from jobs.models import Job
from queues import admission
from queues.admission import Code, Range, Reason, Unknown, Wait
from queues.models import Queue
from queues.trees import sharing

from . import fleet, holding, reach, snapshot
from .snapshot import Snapshot

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
    seen, holders = foreseen(job.queue, now)
    return explained(up_to(job, seen), job.queue, holders, now).get(job.pk)


def of_queue(queue: Queue) -> dict[int, Waiting]:
    """Return the same for the first jobs that wait in a queue, by their ids, in order."""
    now = timezone.now()
    seen, holders = foreseen(queue, now)
    return explained(seen, queue, holders, now)


def of_new(job: Job) -> Waiting:
    """Return the same for a job that is not submitted yet: `job` is its row, unsaved."""
    now = timezone.now()
    seen, holders = foreseen(job.queue, now, also=[job])
    return explained(seen, job.queue, holders, now)[0]


def up_to(job: Job, seen: Snapshot) -> Snapshot:
    """Return what decides about one job: nothing behind it in its queue changes its turn."""
    own = next((one for one in seen.pending if one.job == job.pk), None)
    before = [one for one in seen.pending if own and (one.queue != own.queue or one.order <= own.order)]
    return replace(seen, pending=before)


def foreseen(queue: Queue, now: datetime, also: Iterable[Job] = ()) -> tuple[Snapshot, list[Job]]:
    """Return what admission decides on, with how long each job probably takes, and the jobs that hold quota.

    `also`: jobs that wait with those that are looked at anyway.
    """
    shared = sharing(queue)
    ended = holding.ended_jobs(shared.queues)
    holders = list(
        Job.objects.holding_quota()
        .filter(queue__in=[one.pk for one in shared.queues])
        .select_related("user")
        .order_by("-slots", "id")
    )
    first = reach.waiting(shared, of=queue)
    known = {job.pk for job in first}
    jobs = [*first, *(job for job in also if job.pk not in known)]
    held = holding.grouped(holding.foreseen(holders, shared, ended, now=now))
    seen = fleet.with_fleet(snapshot.snapshot(shared, jobs, held=held), jobs, fleet.of_queues(shared))
    by_id = {job.pk or 0: job for job in jobs}
    expected = [replace(one, expected=holding.within(by_id[one.job], ended)) for one in seen.pending]
    return replace(seen, pending=expected), holders


def explained(seen: Snapshot, queue: Queue, holders: list[Job], now: datetime) -> dict[int, Waiting]:
    """Return what is to be said of the jobs of one queue, in order."""
    at = now.timestamp()
    decisions = admission.decide(seen.queues, seen.pending, nodes=seen.nodes, now=at)
    starts = admission.forecast(seen.queues, seen.pending, nodes=seen.nodes, now=at, of=queue.name)
    remaining = {one.job: one.remaining for state in seen.queues for one in state.holding}
    theirs = [job for job in holders if job.team_id == queue.team_id]  # other teams' jobs are not for everybody to see
    named = tuple(Holder(job, _moments(remaining[job.pk], now)) for job in theirs[:HOLDERS])
    ours = {one.job for one in seen.pending if one.queue == queue.name}
    found, position = dict[int, Waiting](), 0
    for one in decisions:
        if one.job not in ours:
            continue
        reason = one.why if isinstance(one, Wait) else None
        is_in_line = reason is None or reason.code not in admission.ASIDE
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


FOR_QUOTA = frozenset({Code.BEHIND, Code.WAITING_FOR_QUOTA, Code.RESERVED_FOR, Code.PREEMPTING})


def _moments(one: Range | None, now: datetime) -> tuple[datetime, datetime] | None:
    return None if one is None else (now + timedelta(seconds=one.least), now + timedelta(seconds=one.most))
