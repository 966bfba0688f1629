"""The rows that say why attempts failed, and their only writer. They are judged again whenever ranks or replicas have news.

A process that dies between the news and the verdict costs nothing: the reconciler's next visit judges again, and where there
is no row (an installation of an earlier release) readers judge for themselves.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from common import doorbell, faultpoints
from jobs.core.failure_kinds import Kind
from jobs.core.lifecycle import Phase, StopReason
from jobs.core.verdict import ReplicaState, Seen
from jobs.models import AttemptFailure, Job

from . import failures
from .judging import Failure

log = logging.getLogger(__name__)
# Decided by Muster itself: what ranks say later, while they are stopped for it, changes nothing.
_DECIDED = frozenset({Kind.PREEMPTED, Kind.DEADLINE, Kind.START_TIMEOUT})
_ENDINGS = frozenset(
    {StopReason.FAILED, StopReason.RETRY, StopReason.DEADLINE, StopReason.PREEMPTED, StopReason.START_TIMEOUT}
)


@contextmanager
def never_in_the_way(job: int, attempt: int) -> Iterator[None]:
    """Around a judgement that something more important follows. Use it outside of transactions."""
    try:
        yield
    except (OperationalError, InterfaceError):
        raise  # the database is away: what follows needs it as well
    except Exception:
        # Judging reads whatever the processes printed. A verdict that fails on it is missing; a step that fails with it would
        # be tried again for ever, with the job's nodes held all the while.
        log.exception("job %s: attempt %s could not be judged", job, attempt)


def refresh(job: int, attempt: int) -> None:
    """Judge an attempt by its rows as they are now. The text of a log, where one is needed, is read before any lock is taken."""
    row = Job.objects.filter(pk=job).first()
    if row is None or not attempt or _is_decided(row, attempt):
        return
    read = failures.Reader(row, attempt)
    failures.judged(row, attempt, read=read)
    if _write(job, attempt, read.again()):
        doorbell.hint(job=job, team=row.team_id, what="state")


def refresh_after_changes(job: int, attempt: int, *, states: frozenset[str]) -> None:
    """After an agent's batch. Ranks that start or end well matter only where something had failed before."""
    if "failed" in states or (states and AttemptFailure.objects.filter(job=job, attempt=attempt).exists()):
        refresh(job, attempt)


def forget_if_well(job: int, attempt: int) -> None:
    """An attempt that came up, or ended as somebody wanted, has no failure any more."""
    if AttemptFailure.objects.filter(job=job, attempt=attempt).exists():
        refresh(job, attempt)


def is_worth_judging(phase: Phase, reason: StopReason | None, seen: Seen) -> bool:
    """Whether a visit's look may change the verdict: the attempt is being ended, or replicas say why they do not start."""
    if phase is Phase.STARTING:
        return any(one.state is ReplicaState.PENDING and one.reason for one in seen.replicas)
    return reason in _ENDINGS


def _is_decided(job: Job, attempt: int) -> bool:
    if attempt == job.attempt:
        return False
    kinds = AttemptFailure.objects.filter(job=job, attempt=attempt).values_list("kind", flat=True)
    return not kinds or kinds[0] in _DECIDED


def _write(job: int, attempt: int, read: failures.Reader) -> bool:
    """Whether the verdict is another one than before. Under the job's lock: of two writers the later one has seen more."""
    with faultpoints.atomic("failures.write"):
        row = Job.objects.select_for_update(no_key=True).get(pk=job)
        found = failures.judged(row, attempt, read=read)
        known = AttemptFailure.objects.filter(job=job, attempt=attempt).first()
        if found is None:
            if known is not None:
                known.delete()
            return known is not None
        if known is not None and failures.of_row(known) == found:
            return False
        values = {**_columns(found), "judged_at": timezone.now()}
        AttemptFailure.objects.update_or_create(job=row, attempt=attempt, defaults=values)
        return True


def _columns(found: Failure) -> dict[str, object]:
    return {**asdict(found), "kind": str(found.kind), "certainty": str(found.certainty)}
