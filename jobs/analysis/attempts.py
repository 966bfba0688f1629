"""The attempts of a job: when each began and ended, and why. Read from its history, which is never rewritten."""

from dataclasses import dataclass
from datetime import datetime

from jobs.core.lifecycle import ON_CLUSTER, Phase
from jobs.models import Job, JobEvent, Rank, RankState

from . import failures
from .judging import Failure


@dataclass
class Attempt:
    """One launch.

    `outcome` is the phase it ended in, empty while it lasts; `message` the message recorded with that.
    """

    attempt: int
    started_at: datetime
    running_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str = ""
    message: str = ""
    first_failing_rank: int | None = None
    first_failure: Failure | None = None

    @property
    def has_failed(self) -> bool:
        """Whether it failed. A retry leads back to ADMITTED; preemption and a start timeout lead back to QUEUED."""
        return self.outcome in (Phase.FAILED, Phase.ADMITTED)


def attempts(job: Job) -> list[Attempt]:
    """Return the attempts, oldest first; none if the job was never launched. Three queries, whatever their number."""
    found: dict[int, Attempt] = {}
    steps = JobEvent.objects.filter(job=job, kind="step", attempt__gt=0).order_by("id")
    for event in steps.only("at", "phase", "attempt", "message"):
        _note(found, event)
    judged = failures.of_attempts(job)
    for number, rank in _culprits(job).items():
        if number in found and number not in judged:
            found[number].first_failing_rank = rank
    for number, failure in judged.items():
        if number in found:
            found[number].first_failing_rank, found[number].first_failure = failure.rank, failure
    return list(found.values())


def _note(found: dict[int, Attempt], event: JobEvent) -> None:
    one = found.get(event.attempt)
    if one is None:
        one = found[event.attempt] = Attempt(event.attempt, event.at)
    if one.outcome:  # it is over: later events with the same number belong to the queue
        return
    one.message = event.message
    if event.phase == Phase.RUNNING:
        one.running_at = event.at
    if event.phase not in ON_CLUSTER:
        one.ended_at, one.outcome = event.at, event.phase


def _culprits(job: Job) -> dict[int, int]:
    """Return each attempt's first failing rank, for attempts that ended before verdicts were stored."""
    by_attempt: dict[int, list[Rank]] = {}
    for rank in Rank.objects.filter(job=job, state=RankState.FAILED).defer("error"):
        by_attempt.setdefault(rank.attempt, []).append(rank)
    chosen = {number: failures.first_of(ranks) for number, ranks in by_attempt.items()}
    return {number: rank for number, rank in chosen.items() if rank is not None}
