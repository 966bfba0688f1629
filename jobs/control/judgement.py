"""Why attempts failed, judged by a visit of their job: so in one process at a time, and outside of every transaction.

A visit judges the attempt that its step ends or that does not come up, and every attempt about which agents reported
something new (`Replica.unjudged_at`, which ingest sets and wakes the job for). Reports may come after an attempt's end:
an agent that was cut off delivers them for MUSTER_AGENT_DRAIN_SECONDS, also those of a finished job.
"""

from common import faultpoints
from jobs.analysis import failure_rows, failures
from jobs.analysis.judging import Failure
from jobs.core import exits
from jobs.core.lifecycle import Cause, Phase, Step, StopReason
from jobs.core.verdict import PORT_TAKEN, ReplicaState, Seen
from jobs.models import Job, Replica

from .reconciler import Held
from .store import unjudged

# Reasons to end an attempt that make it a failed one.
ENDINGS = frozenset(
    {StopReason.FAILED, StopReason.RETRY, StopReason.DEADLINE, StopReason.PREEMPTED, StopReason.START_TIMEOUT}
)
# A step to one of these withdraws a verdict: the attempt came up, or ended as requested.
_WITHDRAWN_BY = (Phase.RUNNING, Phase.SUCCEEDED, Phase.CANCELLED, Phase.SUSPENDED)


def judge(held: Held, *, seen: Seen, step: Step) -> Cause:
    """Judge whatever may have changed. Returns why the attempt failed, if `step` is about to end it.

    Judging reads untrusted output: its errors are logged, and only the verdict is missing.
    """
    cause = Cause()
    with failure_rows.isolate_errors(held.job, held.view.attempt):
        if held.has_reports:
            _judge_reports(held)
        _judge_step(held, seen, step)
        if held.view.phase is Phase.STOPPING and step.to is not None and step.reason in ENDINGS:
            cause = _cause(held, step)
    return cause


def _judge_reports(held: Held) -> None:
    """Judge each attempt with new reports. What arrives meanwhile has another time, and is left to the next visit."""
    found = list(unjudged(held.job).values_list("id", "attempt", "unjudged_at", "closed_at"))
    for attempt in sorted({attempt for _, attempt, _, _ in found}):
        is_over = any(closed_at is not None for _, of, _, closed_at in found if of == attempt)
        failure_rows.refresh(held.job, attempt, after_end=is_over)
    replicas, times = [one[0] for one in found], [one[2] for one in found]
    if found:
        with faultpoints.around("failures.judged"):
            Replica.objects.filter(pk__in=replicas, unjudged_at__in=times).update(unjudged_at=None)


def _judge_step(held: Held, seen: Seen, step: Step) -> None:
    """Judge the current attempt where the observation, or the step, may change its verdict."""
    view = held.view
    if step.to is None and view.phase is not Phase.STARTING:
        return
    if _is_worth_judging(view.phase, view.stop_reason, seen):
        failure_rows.refresh(held.job, view.attempt)
    elif step.to in _WITHDRAWN_BY:
        failure_rows.refresh_if_failed(held.job, view.attempt)


def _is_worth_judging(phase: Phase, reason: StopReason | None, seen: Seen) -> bool:
    """Whether the attempt is being ended as a failed one, or replicas report why they do not start."""
    if phase is Phase.STARTING:
        return any(one.state is ReplicaState.PENDING and one.reason for one in seen.replicas)
    return reason in ENDINGS


def _cause(held: Held, step: Step) -> Cause:
    """Return the verdict's part in the step that ends the attempt: once it is over, its ranks have reported."""
    job = Job.objects.get(pk=held.job)
    found = failures.stored(job, held.view.attempt)
    message = failures.end_message(found, step=step.message or job.message, is_elastic=job.is_elastic)
    return Cause(message, _exit_code(job, found))


def _exit_code(job: Job, failure: Failure | None) -> int | None:
    """Return the exit code of the process that failed first, as a shell reports it.

    None also where a replica found its port taken: what it then reports is not the user's process.
    """
    if failure is None or Replica.objects.filter(job=job, attempt=job.attempt, reason=PORT_TAKEN).exists():
        return None
    return exits.code_of(failure.exit_code, failure.signal)
