"""The lifecycle of a job in one pure file: phases, reasons, and the one function that decides what comes next.

           admit                 create              all replicas running
 QUEUED ---------> ADMITTED ---------> STARTING ---------> RUNNING
   ^ ^                ^                    |                  |
   | |                |                    +--------+---------+
   | |                |                             v
   | +-- preempted ---+------ retry --------- STOPPING(reason) ---- completed ---> SUCCEEDED
   |     start timeout                              |        \\----- failed ------> FAILED
   +---- resume --- SUSPENDED <----- suspended -----+        \\----- cancelled ---> CANCELLED

A job leaves the cluster only through STOPPING, and its stop reason decides the next phase. Nothing here reads a clock,
a row or a cluster: `decide(view, seen, now)` gets all three.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from . import replacement
from .replacement import Key, ReplicaPlace
from .verdict import NO_PLACE, ReplicaSeen, ReplicaState, RoleView, Seen, Verdict, is_up, verdict, who_runs


class Phase(StrEnum):
    QUEUED = "queued"  # waits for quota
    ADMITTED = "admitted"  # holds quota, nothing created yet
    STARTING = "starting"  # replicas are being created
    RUNNING = "running"  # every replica runs
    STOPPING = "stopping"  # replicas are asked to end; the reason decides the next phase
    SUSPENDED = "suspended"  # a user asked for a pause; holds nothing
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StopReason(StrEnum):
    COMPLETED = "completed"  # every completing role succeeded
    FAILED = "failed"  # an essential replica failed and no retry is left
    DEADLINE = "deadline"  # ran longer than its own limit
    CANCELLED = "cancelled"  # by a user
    SUSPENDED = "suspended"  # a user asked for a pause
    PREEMPTED = "preempted"  # its quota goes to another job
    START_TIMEOUT = "start_timeout"  # the gang did not come up in time
    RETRY = "retry"  # failed, and the budget allows another attempt


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})
HOLDS_QUOTA = frozenset({Phase.ADMITTED, Phase.STARTING, Phase.RUNNING, Phase.STOPPING})
ON_CLUSTER = frozenset({Phase.STARTING, Phase.RUNNING, Phase.STOPPING})

LANDS_ON = {
    StopReason.COMPLETED: Phase.SUCCEEDED,
    StopReason.FAILED: Phase.FAILED,
    StopReason.DEADLINE: Phase.FAILED,
    StopReason.CANCELLED: Phase.CANCELLED,
    StopReason.SUSPENDED: Phase.SUSPENDED,
    StopReason.PREEMPTED: Phase.QUEUED,
    StopReason.START_TIMEOUT: Phase.QUEUED,
    StopReason.RETRY: Phase.ADMITTED,
}

# While STOPPING, a stronger reason replaces a weaker one. A verdict (completed, failed, deadline) is never replaced.
STRENGTH = {
    StopReason.RETRY: 0,
    StopReason.PREEMPTED: 1,
    StopReason.START_TIMEOUT: 1,
    StopReason.SUSPENDED: 2,
    StopReason.CANCELLED: 3,
    StopReason.COMPLETED: 4,
    StopReason.FAILED: 4,
    StopReason.DEADLINE: 4,
}

# Every step that `decide` or the scheduler may record; a test that generates random histories finds no other.
STEPS = frozenset(
    {
        (Phase.QUEUED, Phase.ADMITTED),
        (Phase.QUEUED, Phase.SUSPENDED),
        (Phase.QUEUED, Phase.CANCELLED),
        (Phase.SUSPENDED, Phase.QUEUED),
        (Phase.SUSPENDED, Phase.CANCELLED),
        (Phase.ADMITTED, Phase.STARTING),
        (Phase.ADMITTED, Phase.QUEUED),
        (Phase.ADMITTED, Phase.SUSPENDED),
        (Phase.ADMITTED, Phase.CANCELLED),
        (Phase.STARTING, Phase.RUNNING),
        (Phase.STARTING, Phase.STOPPING),
        (Phase.RUNNING, Phase.STOPPING),
        *((Phase.STOPPING, landing) for landing in LANDS_ON.values()),
    }
)

SAFETY_TICK = timedelta(seconds=5)  # a doorbell may be lost; a visit this much later is guaranteed
STOP_TICK = timedelta(seconds=0.5)  # while objects are removed, visit again soon: quota is held until they are gone
MOST_COMPARED = 120  # characters of a reason; the one before may have been shortened in its middle
HOPELESS = "not retried: another attempt would have the same image"
FREE_STARTS = 5  # attempts that ended on a taken port before any rank started cost no retry, this many times


@dataclass(frozen=True)
class JobView:
    """Everything `decide` may use about a job. Durations in seconds."""

    phase: Phase
    phase_since: datetime
    attempt: int = 0
    attempt_floor: int = 0  # the next attempt has at least this number: a restoration does not know of those in between
    failures: int = 0
    free_starts: int = 0
    max_retries: int = 0
    retry_on: frozenset[int] = frozenset()  # exit codes after which alone it is retried; empty: after any
    never_retry_on: frozenset[int] = frozenset()
    stop_reason: StopReason | None = None
    is_cancel_requested: bool = False
    is_now_requested: bool = False  # without the grace period
    is_suspended: bool = False
    is_preempt_requested: bool = False
    applied_at: datetime | None = None  # when the cluster confirmed this attempt's creation, None before
    running_since: datetime | None = None
    start_timeout_seconds: int = 300
    no_place_before: str = ""  # why the attempt before this one found no place until its start timed out
    deadline_seconds: int | None = None
    roles: tuple[RoleView, ...] = ()
    places: Mapping[Key, ReplicaPlace] = field(
        default_factory=dict
    )  # places whose replica was replaced in this attempt


@dataclass(frozen=True)
class Step:
    """What to record: the next phase (None: stay), why, and the latest time of the next visit."""

    to: Phase | None = None
    reason: StopReason | None = None
    message: str = ""
    requeue_after: timedelta | None = SAFETY_TICK
    is_failure: bool = False  # counts against the retry budget
    is_free_start: bool = False
    replace: tuple[Key, ...] = ()  # places that get a new replica within the attempt
    end_replicas: tuple[Key, ...] = ()  # places to be freed for that
    lost: tuple[Key, ...] = ()  # places whose replica is gone without an end of its own, because of which it failed
    is_now: bool = False  # whatever is still to be ended gets no grace period
    note: str = ""  # a line of history of its own, before the step's


@dataclass(frozen=True)
class Cause:
    """Why the attempt that a step ends had failed, as judged by what its ranks reported until then."""

    message: str = ""  # takes the place of the step's; empty: nothing to say, the step's stays
    exit_code: int | None = None  # of the process that failed first, as a shell reports it


def decide(view: JobView, seen: Seen, now: datetime) -> Step:
    """Return the next step of one job, at most one phase further.

    If it was asked to end at once, no way to its end has a grace period.
    """
    step = _decide(view, seen, now)
    return replace(step, is_now=True) if view.is_now_requested else step


def _decide(view: JobView, seen: Seen, now: datetime) -> Step:
    """Decide without regard to `is_now`. The order of the cases is their priority."""
    match view.phase:
        case phase if phase in TERMINAL:
            return Step(requeue_after=None)
        case Phase.QUEUED | Phase.SUSPENDED:
            return _without_objects(view)
        case Phase.ADMITTED:
            return _admitted(view)
        case Phase.STOPPING:
            return _stopping(view, seen)
        case _:
            return _on_cluster(view, seen, now)


def after(view: JobView, step: Step, now: datetime) -> JobView:
    """Return the view once `step` is recorded. Stores write these values and add nothing of their own."""
    if step.replace:
        view = replace(view, places=replacement.replaced(view.places, step.replace, now))
    if step.to is None:
        return view
    view = replace(
        view, failures=view.failures + step.is_failure, free_starts=view.free_starts + step.is_free_start
    )  # fmt: skip
    if step.reason is not None:
        view = replace(view, stop_reason=step.reason)
    if step.to is view.phase:
        return view
    view = replace(view, phase=step.to, phase_since=now)
    match step.to:
        case Phase.STARTING:
            return replace(
                view, attempt=_next_attempt(view), stop_reason=None, applied_at=None, running_since=None, places={}
            )
        case Phase.RUNNING:
            return replace(view, running_since=now)
        case Phase.QUEUED | Phase.SUSPENDED:
            return replace(view, is_preempt_requested=False, running_since=None)
    return view


def settled(step: Step, view: JobView, cause: Cause) -> Step:
    """Return the step that leaves STOPPING, now that it is known why the attempt failed.

    A launcher has an exit code of its own, and the ranks report theirs until the attempt is over, so a retry is granted
    first and withdrawn here. `exit_code`: 128 + n for signal n; None if no process of the job failed (a replica was lost,
    an image could not be pulled): the job's exit codes then do not decide.
    """
    final = replace(step, message=cause.message or step.message)
    if view.phase is not Phase.STOPPING or step.reason is not StopReason.RETRY or step.to is not LANDS_ON[step.reason]:
        return final
    if note := _excluded(view, cause.exit_code):
        return Step(Phase.FAILED, StopReason.FAILED, final.message, None, note=note)
    return final


def _excluded(view: JobView, exit_code: int | None) -> str:
    """Say why the job's exit codes exclude a retry; empty where they allow it."""
    if exit_code is None:
        return ""
    if exit_code in view.never_retry_on:
        return f"not retried: exit code {exit_code} is in never_retry_on"
    if view.retry_on and exit_code not in view.retry_on:
        return f"not retried: exit code {exit_code} is not in retry_on"
    return ""


def applied(view: JobView, now: datetime) -> JobView:
    """Return the view once the cluster has confirmed what was to be created: the attempt, or replacement replicas."""
    return replace(view, applied_at=view.applied_at or now, places=replacement.confirmed(view.places, now))


def _without_objects(view: JobView) -> Step:
    if view.is_cancel_requested:
        when = "while it was suspended" if view.phase is Phase.SUSPENDED and view.attempt else "before it started"
        when = "while it waited" if view.phase is Phase.QUEUED and view.attempt else when
        return Step(Phase.CANCELLED, message=f"cancelled {when}", requeue_after=None)
    if view.phase is Phase.QUEUED and view.is_suspended:
        return Step(Phase.SUSPENDED, message="suspended while waiting", requeue_after=None)
    if view.phase is Phase.SUSPENDED and not view.is_suspended:
        return Step(Phase.QUEUED, message="resumed")
    return Step(requeue_after=None)


def _admitted(view: JobView) -> Step:
    wanted = _wanted_stop(view)
    if wanted and wanted.reason:  # no objects yet, or none left: STOPPING is not needed
        to = LANDS_ON[wanted.reason]
        return Step(to, wanted.reason, wanted.message, None)
    return Step(Phase.STARTING, message=f"attempt {_next_attempt(view)}: creating replicas", requeue_after=timedelta(0))


def _next_attempt(view: JobView) -> int:
    return max(view.attempt + 1, view.attempt_floor)


def _on_cluster(view: JobView, seen: Seen, now: datetime) -> Step:
    if view.is_cancel_requested:
        return _stop(StopReason.CANCELLED, "cancelled")
    replicas = replacement.with_losses(view.roles, seen, applied_at=view.applied_at, places=view.places)
    ending = verdict(view.roles, replicas)
    if ending.outcome == "succeeded":
        return _stop(StopReason.COMPLETED, _completed(view))
    if stop := _wanted_stop(view):
        return stop
    if ending.outcome == "failed":
        lost = tuple((one.role, one.index) for one in replicas if one.state is ReplicaState.LOST)
        return replace(_failed(view, ending), lost=lost)
    if late := _too_late(view, seen, now):
        return late
    # Not before creation is confirmed: in RUNNING it would no longer be requested, and without it absence never counts
    # as loss.
    is_there = view.phase is Phase.STARTING and view.applied_at is not None
    if is_there and all(is_up(role, replicas) for role in view.roles):
        return Step(Phase.RUNNING, message=who_runs(view.roles, replicas))
    return _going_on(view, replicas, now)


def _going_on(view: JobView, replicas: tuple[ReplicaSeen, ...], now: datetime) -> Step:
    """Keep the job as it is; replicas of an elastic one may be ended and replaced."""
    if view.applied_at is None or all(role.least is None for role in view.roles):
        return Step()
    todo = replacement.plan_replacements(view.roles, replicas, view.places, now=now)
    ticks = [SAFETY_TICK, todo.after, STOP_TICK if todo.end_replicas else None, timedelta(0) if todo.replace else None]
    return Step(
        end_replicas=todo.end_replicas,
        replace=todo.replace,
        requeue_after=min(tick for tick in ticks if tick is not None),
    )


def _wanted_stop(view: JobView) -> Step | None:
    """Return the stop that users or the scheduler asked for, strongest first."""
    if view.is_cancel_requested:
        return _stop(StopReason.CANCELLED, "cancelled")
    if view.is_preempt_requested:
        return _stop(StopReason.PREEMPTED, "preempted: asked to give its quota back")
    if view.is_suspended:
        return _stop(StopReason.SUSPENDED, "suspended")
    return None


def _stop(reason: StopReason, message: str, *, is_failure: bool = False, is_free_start: bool = False) -> Step:
    return Step(Phase.STOPPING, reason, message, timedelta(0), is_failure, is_free_start)


def _failed(view: JobView, ending: Verdict) -> Step:
    if ending.is_port_taken and view.free_starts < FREE_STARTS:
        return _stop(StopReason.RETRY, "the rendezvous port was in use before any rank started", is_free_start=True)
    if ending.is_preempted:  # by its cluster: it waits again, with its place and its retries kept
        return _stop(StopReason.PREEMPTED, ending.message)
    left = view.max_retries - view.failures
    if left > 0 and not ending.is_hopeless:
        return _stop(
            StopReason.RETRY, f"{ending.message}; retry {view.failures + 1} of {view.max_retries}", is_failure=True
        )
    failed = _stop(StopReason.FAILED, ending.message, is_failure=True)
    return replace(failed, note=HOPELESS) if left > 0 else failed


def _too_late(view: JobView, seen: Seen, now: datetime) -> Step | None:
    """Check deadlines. The start timeout, which is a judgement, does not apply while the view is stale."""
    limit = view.deadline_seconds
    if limit is not None and view.running_since and now - view.running_since > timedelta(seconds=limit):
        return _stop(StopReason.DEADLINE, f"ran longer than its deadline of {limit} s", is_failure=True)
    waited = now - view.phase_since
    if view.phase is Phase.STARTING and seen.is_fresh and waited > timedelta(seconds=view.start_timeout_seconds):
        if again := _no_place_again(view, seen):
            return again
        return _stop(StopReason.START_TIMEOUT, f"not all replicas were running within {view.start_timeout_seconds} s")
    return None


def _no_place_again(view: JobView, seen: Seen) -> Step | None:
    """End a job whose start found no place twice for the same reason: it would hold its quota for nothing, without end."""
    if not view.no_place_before:
        return None
    for one in seen.replicas:
        _, found, reason = one.reason.partition(f"{NO_PLACE}: ")
        if found and one.state is ReplicaState.PENDING and _same(reason, view.no_place_before):
            words = f"{NO_PLACE} in two starts of {view.start_timeout_seconds} s: {one.role}-{one.index}: {reason}"
            return _stop(StopReason.FAILED, words, is_failure=True)
    return None


def _same(reason: str, before: str) -> bool:
    """Whether both say the same but for numbers, which change with what else the nodes run."""
    plain, plain_before = (re.sub(r"\d+", "#", text) for text in (reason, before))
    return plain[:MOST_COMPARED] in plain_before


def _completed(view: JobView) -> str:
    """Return which replicas ended with code 0: all, or those of the roles whose success is the job's."""
    names = [role.name for role in view.roles if role.completes]
    return f"every {'replica' if len(names) == len(view.roles) else ' and '.join(names)} ended with code 0"


def _stopping(view: JobView, seen: Seen) -> Step:
    reason = view.stop_reason or StopReason.FAILED
    wanted = _wanted_stop(view)
    if wanted and wanted.reason and STRENGTH[wanted.reason] > STRENGTH[reason]:
        return wanted
    if not is_gone(view, seen):
        return Step(requeue_after=STOP_TICK)
    # Judged once more: replicas that completed during their grace period must not be run again.
    if reason is not StopReason.CANCELLED and verdict(view.roles, seen.replicas).outcome == "succeeded":
        return Step(Phase.SUCCEEDED, StopReason.COMPLETED, _completed(view), None)
    to = LANDS_ON[reason]
    return Step(to, reason, requeue_after=None if to in TERMINAL or to is Phase.SUSPENDED else timedelta(0))


def is_gone(view: JobView, seen: Seen) -> bool:
    """Return whether nothing of the attempt occupies a place any longer, observed after its end was requested.

    There are two guards. Freshness: an old cached view of an empty cluster would free the quota while replicas still
    train. The seal: without it a creation in flight could still add replicas.
    """
    if seen.as_of is None or not seen.is_fresh or seen.as_of <= view.phase_since or not seen.is_sealed:
        return False
    return not any(replica.is_alive for replica in seen.replicas)
