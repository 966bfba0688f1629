"""The attempts of a job: when each began and ended, and why.

Their rows (`models/attempt.py`) are written with each step. A process of the release before writes none, so for one
release the history, which every release writes, is read as well, and rows that lack something are completed from it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Subquery

from common import faultpoints
from jobs import clusters
from jobs.core.lifecycle import ON_CLUSTER, Phase
from jobs.models import Attempt, AttemptFailure, Job, JobEvent, Rank, RankState, Replica

from . import failures
from .judging import Failure

_FROM_HISTORY = ("running_at", "ended_at", "outcome", "message")


@dataclass
class AttemptSummary:
    """One launch, and its verdict.

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


def attempts(job: Job) -> list[AttemptSummary]:
    """Return the attempts, oldest first; none if the job was never launched. Four queries, whatever their number."""
    found = {
        row.number: AttemptSummary(row.number, row.launched_at, row.running_at, row.ended_at, row.outcome, row.message)
        for row in complete(job)
    }
    judged = failures.of_attempts(job)
    for number, rank in _culprits(job).items():
        if number in found and number not in judged:
            found[number].first_failing_rank = rank
    for number, failure in judged.items():
        if number in found:
            found[number].first_failing_rank, found[number].first_failure = failure.rank, failure
    return list(found.values())


def complete(job: Job) -> list[Attempt]:
    """Return the rows of a job's attempts, after adding what a process of the release before did not write."""
    rows = {row.number: row for row in Attempt.objects.filter(job=job)}
    if not _lacking(rows, _of_history(job)):
        return list(rows.values())
    with faultpoints.atomic("attempts.complete"):
        # Under the job's lock: a step that is being taken would otherwise be overwritten with what was before it.
        Job.objects.select_for_update(no_key=True).only("pk").get(pk=job.pk)
        known = {row.number: row for row in Attempt.objects.filter(job=job)}
        lacking = _lacking(known, _of_history(job))
        cluster = job.queue.cluster
        namespace = clusters.namespace_of(cluster)
        Attempt.objects.bulk_create(
            [
                Attempt(
                    job=job, number=number, cluster=cluster, namespace=namespace, workspace_id=job.workspace_id, **values
                )
                for number, values in lacking.items()
            ],
            update_conflicts=True, unique_fields=["job", "number"], update_fields=_FROM_HISTORY,
        )  # fmt: skip
    return list(Attempt.objects.filter(job=job))


def backfill(jobs: Iterable[int]) -> int:
    """Complete the attempts of these jobs, and let events, replicas and verdicts point to them; return how many rows
    were changed. May be repeated."""
    ids = list(jobs)
    for job in Job.objects.filter(pk__in=ids).select_related("queue"):
        complete(job)
    changed = 0
    for model in (JobEvent, Replica, AttemptFailure):
        rows = Attempt.objects.filter(job=OuterRef("job"), number=OuterRef("attempt")).values("pk")
        pointing = model._default_manager.filter(job__in=ids, launch=None, attempt__gt=0)
        with faultpoints.atomic("attempts.complete"):
            changed += pointing.update(launch=Subquery(rows[:1]))
    return changed


def _lacking(rows: dict[int, Attempt], told: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return what the history tells of attempts whose rows are missing or say something else."""
    return {
        number: values
        for number, values in told.items()
        if number not in rows or any(getattr(rows[number], name) != values[name] for name in _FROM_HISTORY)
    }


def _of_history(job: Job) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    steps = JobEvent.objects.filter(job=job, kind="step", attempt__gt=0).order_by("id")
    for event in steps.values_list("at", "phase", "attempt", "message", named=True):
        usual = {"launched_at": event.at, "running_at": None, "ended_at": None, "outcome": "", "message": ""}
        one = found.setdefault(event.attempt, usual)
        if one["outcome"]:  # it is over: later events with the same number belong to the queue
            continue
        one["message"] = event.message
        if event.phase == Phase.RUNNING:
            one["running_at"] = event.at
        if event.phase not in ON_CLUSTER:
            one["ended_at"], one["outcome"] = event.at, event.phase
    return found


def _culprits(job: Job) -> dict[int, int]:
    """Return each attempt's first failing rank, for attempts that ended before verdicts were stored."""
    by_attempt: dict[int, list[Rank]] = {}
    for rank in Rank.objects.filter(job=job, state=RankState.FAILED).defer("error"):
        by_attempt.setdefault(rank.attempt, []).append(rank)
    chosen = {number: failures.first_of(ranks) for number, ranks in by_attempt.items()}
    return {number: rank for number, rank in chosen.items() if rank is not None}
