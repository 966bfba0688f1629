"""The only writer of the rows that explain why attempts failed. Judges again whenever ranks or replicas change.

Where a verdict changes after its attempt has ended, the message that was recorded with that end changes with it.

Called by a visit of the job alone (jobs/control/judgement.py). Where there is no row yet, or an installation of an
earlier release wrote none, readers judge for themselves.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from common import faultpoints
from common.signals import doorbell
from jobs.core.failure_kinds import Kind
from jobs.core.lifecycle import Phase
from jobs.models import Attempt, AttemptFailure, Job, JobEvent

from . import failures
from .judging import Failure

log = logging.getLogger(__name__)
# Decided by Muster itself: later reports of the ranks, which are stopped for it, change nothing.
_DECIDED = frozenset({Kind.PREEMPTED, Kind.DEADLINE, Kind.START_TIMEOUT})


@contextmanager
def isolate_errors(job: int, attempt: int) -> Iterator[None]:
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


def refresh(job: int, attempt: int, *, after_end: bool = False) -> None:
    """Judge an attempt by its current rows. Log text, if needed, is read before any lock is taken.

    `after_end`: because of a report that came after the attempt had ended; a verdict that changes by it says so.
    """
    row = Job.objects.filter(pk=job).first()
    if row is None or not attempt or _is_decided(row, attempt):
        return
    read = failures.Reader(row, attempt)
    failures.judged(row, attempt, read=read)
    if _write(job, attempt, read.again(), after_end=after_end):
        doorbell.hint(job=job, team=row.team_id, what="state")


def refresh_if_failed(job: int, attempt: int) -> None:
    """Judge an attempt again if it has a verdict: it came up or ended as requested, which removes the verdict."""
    if AttemptFailure.objects.filter(job=job, attempt=attempt).exists():
        refresh(job, attempt)


def _is_decided(job: Job, attempt: int) -> bool:
    if attempt == job.attempt:
        return False
    kinds = AttemptFailure.objects.filter(job=job, attempt=attempt).values_list("kind", flat=True)
    return not kinds or kinds[0] in _DECIDED


def _write(job: int, attempt: int, read: failures.Reader, *, after_end: bool) -> bool:
    """Write the verdict; return whether it changed. Under the job's lock: the later of two writers has seen more."""
    with faultpoints.atomic("failures.write"):
        row = Job.objects.select_for_update(no_key=True).get(pk=job)
        found = failures.judged(row, attempt, read=read)
        known = AttemptFailure.objects.filter(job=job, attempt=attempt).first()
        if found is None:
            if known is not None:
                known.delete()
            return known is not None
        if known is not None and replace(failures.of_row(known), after_end=False) == found:
            return False
        now = timezone.now()
        columns = _columns(replace(found, after_end=after_end))
        values = {**columns, "judged_at": now, "launch_id": row.launch_id(attempt)}
        AttemptFailure.objects.update_or_create(job=row, attempt=attempt, defaults=values)
        if _correct_end(row, attempt, found) and after_end:
            words = f"after the end of attempt {attempt}, its agents reported: {found.headline}"
            JobEvent.objects.create(job=row, at=now, kind="note", phase=row.phase, attempt=attempt, message=words)
        return True


def _correct_end(job: Job, attempt: int, failure: Failure) -> bool:
    """Correct the message of an attempt that is over already: an agent's last batches may arrive after its end.

    Returns whether there was such a message, and it was another one.
    """
    steps = JobEvent.objects.filter(job=job, attempt=attempt, kind="step").order_by("id")
    stop = steps.filter(phase=Phase.STOPPING).last()
    end = steps.filter(pk__gt=stop.pk).first() if stop is not None else None
    if stop is None or end is None:
        return False
    words = failures.end_message(failure, step=stop.message, is_elastic=job.is_elastic)
    if words == end.message:
        return False
    JobEvent.objects.filter(pk=end.pk).update(message=words)
    Attempt.objects.filter(job=job, number=attempt).update(message=words)
    # A later step has a message of its own.
    Job.objects.filter(pk=job.pk, attempt=attempt, phase=end.phase, message=end.message).update(message=words)
    return True


def _columns(failure: Failure) -> dict[str, object]:
    return {**asdict(failure), "kind": str(failure.kind), "certainty": str(failure.certainty)}
