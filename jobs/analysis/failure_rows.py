"""The only writer of the rows that explain why attempts failed. Judges again whenever ranks or replicas change.

Where a verdict changes after its attempt has ended, the message that was recorded with that end changes with it.

If a process dies between a change and its verdict, nothing is lost: the reconciler's next visit judges again, and where
there is no row (an installation of an earlier release) readers judge for themselves.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from common import faultpoints
from common.signals import doorbell
from jobs.core.failure_kinds import Kind
from jobs.core.lifecycle import Phase, StopReason
from jobs.core.verdict import ReplicaState, Seen
from jobs.models import AttemptFailure, Job, JobEvent

from . import failures
from .judging import Failure

log = logging.getLogger(__name__)
# Decided by Muster itself: later reports of the ranks, which are stopped for it, change nothing.
_DECIDED = frozenset({Kind.PREEMPTED, Kind.DEADLINE, Kind.START_TIMEOUT})
# Reasons to end an attempt that make it a failed one.
ENDINGS = frozenset(
    {StopReason.FAILED, StopReason.RETRY, StopReason.DEADLINE, StopReason.PREEMPTED, StopReason.START_TIMEOUT}
)


@contextmanager
def never_in_the_way(job: int, attempt: int) -> Iterator[None]:
    """Log errors of a judgement instead of raising them, as something more important follows.

    Use outside of transactions.
    """
    try:
        yield
    except (OperationalError, InterfaceError):
        raise  # the database is down: what follows needs it as well
    except Exception:
        # Judging reads untrusted output. If it fails, only the verdict is missing; if a step failed with it, that step
        # would be retried for ever while the job holds its nodes.
        log.exception("job %s: attempt %s could not be judged", job, attempt)


def refresh(job: int, attempt: int) -> None:
    """Judge an attempt by its current rows. Log text, if needed, is read before any lock is taken."""
    row = Job.objects.filter(pk=job).first()
    if row is None or not attempt or _is_decided(row, attempt):
        return
    read = failures.Reader(row, attempt)
    failures.judged(row, attempt, read=read)
    if _write(job, attempt, read.again()):
        doorbell.hint(job=job, team=row.team_id, what="state")


def refresh_after_changes(job: int, attempt: int, *, states: frozenset[str]) -> None:
    """Judge again after an agent's batch. Ranks that start or succeed only matter if something had failed before."""
    if "failed" in states or (states and AttemptFailure.objects.filter(job=job, attempt=attempt).exists()):
        refresh(job, attempt)


def refresh_if_failed(job: int, attempt: int) -> None:
    """Judge an attempt again if it has a verdict.

    For one that came up or ended as requested, which removes its verdict, and for text that arrives after the end.
    """
    if AttemptFailure.objects.filter(job=job, attempt=attempt).exists():
        refresh(job, attempt)


def is_worth_judging(phase: Phase, reason: StopReason | None, seen: Seen) -> bool:
    """Whether an observation may change the verdict.

    That is so if the attempt is being ended, or replicas report why they do not start.
    """
    if phase is Phase.STARTING:
        return any(one.state is ReplicaState.PENDING and one.reason for one in seen.replicas)
    return reason in ENDINGS


def _is_decided(job: Job, attempt: int) -> bool:
    if attempt == job.attempt:
        return False
    kinds = AttemptFailure.objects.filter(job=job, attempt=attempt).values_list("kind", flat=True)
    return not kinds or kinds[0] in _DECIDED


def _write(job: int, attempt: int, read: failures.Reader) -> bool:
    """Write the verdict; return whether it changed. Under the job's lock: the later of two writers has seen more."""
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
        _correct_end(row, attempt, found)
        return True


def _correct_end(job: Job, attempt: int, found: Failure) -> None:
    """Correct the message of an attempt that is over already: an agent's last batches may arrive after its end."""
    steps = JobEvent.objects.filter(job=job, attempt=attempt, kind="step").order_by("id")
    stop = steps.filter(phase=Phase.STOPPING).last()
    end = steps.filter(pk__gt=stop.pk).first() if stop is not None else None
    if stop is None or end is None:
        return
    words = failures.end_message(found, step=stop.message, is_elastic=job.is_elastic)
    if words == end.message:
        return
    JobEvent.objects.filter(pk=end.pk).update(message=words)
    # A later step has a message of its own.
    Job.objects.filter(pk=job.pk, attempt=attempt, phase=end.phase, message=end.message).update(message=words)


def _columns(found: Failure) -> dict[str, object]:
    return {**asdict(found), "kind": str(found.kind), "certainty": str(found.certainty)}
