"""One visit to a job: take the lease, observe, decide, record, converge. A thin shell around `lifecycle.decide`.

Nothing in here sleeps or retries: unfinished work is due again at a time stored in the row. The store and the clusters
are ports, so the simulation runs this same code.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from common import faultpoints
from common.errors import LeaseLost, Refused, Sealed, Unreachable
from common.telemetry import measures, traces
from jobs.clusters import Cluster, Expected
from jobs.core.attempt_ref import AttemptRef
from jobs.core.lifecycle import (
    ON_CLUSTER,
    STOP_TICK,
    TERMINAL,
    Cause,
    JobView,
    Phase,
    Step,
    StopReason,
    decide,
    settled,
)
from jobs.core.plan import Plan
from jobs.core.replacement import unconfirmed
from jobs.core.verdict import Seen

log = logging.getLogger(__name__)

VISIT_SECONDS = 5  # a visit is bounded; remaining work is due immediately in the next one
MAX_STEPS = 6
UNREACHABLE_TICK = timedelta(seconds=5)
FAULT_TICK = timedelta(seconds=2)
LATE = "job %s: this visit was late, another one has the lease; nothing was written"


@dataclass(frozen=True)
class Held:
    """A job under our lease: the input of `decide`, and what cluster calls need."""

    job: int
    token: int
    view: JobView
    cluster: str
    run: str
    expected: Expected
    grace_seconds: int
    has_reports: bool = False  # agents reported what may change a verdict, of this attempt or an earlier one
    namespace: str = ""  # of the attempt, as its row says

    @property
    def ref(self) -> AttemptRef:
        """The job's newest attempt, as its cluster finds it."""
        return AttemptRef(self.run, self.view.attempt, self.namespace)


class Store(Protocol):
    """Port to the database. Writes are guarded by the fencing token; they raise LeaseLost when the lease was lost.

    `record` takes the step only if the row is still in the phase that was decided on: the scheduler admits without a
    lease.
    """

    def take(self, job: int, *, owner: str, now: datetime) -> Held | None: ...
    def record(self, held: Held, *, seen: Seen, step: Step, now: datetime) -> Held: ...
    def record_applied(self, held: Held, *, now: datetime) -> Held: ...
    def release(self, held: Held, *, due: datetime | None) -> None: ...
    def plan(self, held: Held) -> Plan: ...
    def report_trouble(self, held: Held, trouble: str) -> None:
        """Record a message for users. Not guarded by the lease: it affects no decision."""

    def note(self, held: Held, words: str) -> None:
        """Record a message for users about this attempt. Not guarded by the lease either."""


class BackfillLogs(Protocol):
    """Reads logs that agents cannot send (container_logs.py). False: nothing may be deleted before the next visit."""

    def __call__(self, held: Held, *, seen: Seen, cluster: Cluster, now: datetime) -> bool: ...


class Judge(Protocol):
    """Judges why attempts failed (judgement.py). Returns what that adds to a step that leaves STOPPING."""

    def __call__(self, held: Held, *, seen: Seen, step: Step) -> Cause: ...


def _nothing_to_judge(held: Held, *, seen: Seen, step: Step) -> Cause:
    return Cause()


def _nothing_to_read(held: Held, *, seen: Seen, cluster: Cluster, now: datetime) -> bool:
    return True


def visit(
    job: int,
    *,
    store: Store,
    clusters: Callable[[str], Cluster],
    clock: Callable[[], datetime],
    owner: str,
    backfill_logs: BackfillLogs = _nothing_to_read,
    judge: Judge = _nothing_to_judge,
) -> timedelta | None:
    """Advance one job as far as possible now. Return the delay until its next visit, None for never.

    A lease held by another visit, or lost on the way, is not an error: that other visit does the work.
    """
    held = store.take(job, owner=owner, now=clock())
    if held is None:
        return None
    began = clock()
    try:
        if held.view.phase in TERMINAL:  # without its cluster, which need not be configured any more
            judge(held, seen=Seen(), step=Step(requeue_after=None))  # what arrived after the end
            store.release(held, due=None)
            return None
        for _ in range(MAX_STEPS):
            held, after = advance(
                held, store=store, cluster=clusters(held.cluster), clock=clock, backfill_logs=backfill_logs, judge=judge
            )
            if after is None or after > timedelta(0):
                store.release(held, due=None if after is None else clock() + after)
                return after
            if clock() - began > timedelta(seconds=VISIT_SECONDS):
                break
        store.release(held, due=clock())
        return timedelta(0)
    except LeaseLost as error:
        measures.failed("visit", error)
        log.warning(LATE, job)
        return None
    except Exception:
        # A poisoned row must not spin, and must not wait for the expiry of a lease that is not in use.
        _give_back(held, store=store, due=clock() + FAULT_TICK)
        raise


def _give_back(held: Held, *, store: Store, due: datetime) -> None:
    """Release the lease after an error without masking it.

    The lease may be held by another visit by now; if it cannot be released, it expires.
    """
    try:
        store.release(held, due=due)
    except LeaseLost:
        log.warning(LATE, held.job)
    except Exception as error:  # probably the same error again: the database is down
        log.warning("job %s: its lease was not given back: %s", held.job, error)


def advance(
    held: Held,
    *,
    store: Store,
    cluster: Cluster,
    clock: Callable[[], datetime],
    backfill_logs: BackfillLogs,
    judge: Judge,
) -> tuple[Held, timedelta | None]:
    """One round. Return the new view and the delay until the next round.

    1. Observe the cluster.  2. Decide.  3. Judge, where the step ends the attempt: its message and whether there is a
    retry depend on why it failed.  4. Record.  5. Judge by the rows as they are now.  6. Read logs that agents could not
    send.  7. Converge: make the cluster match.
    """
    try:
        seen = observe(held, cluster)
    except Unreachable as error:
        _report(held, error, store=store)
        seen = Seen()  # unknown, not lost
    step = decide(held.view, seen, clock())
    if step.replace and not backfill_logs(held, seen=seen, cluster=cluster, now=clock()):
        # once the place is replaced, the old replica's log is not read any more
        step = replace(step, replace=(), requeue_after=STOP_TICK)
    if held.view.phase is Phase.STOPPING and step.to is not None:
        step = settled(step, held.view, judge(held, seen=seen, step=step))
    has_reports = held.has_reports
    held = store.record(held, seen=seen, step=step, now=clock())
    judge(replace(held, has_reports=has_reports), seen=seen, step=step)
    traces.note(attempt=held.view.attempt, cluster=held.cluster)
    if step.to is not None and held.view.phase is not step.to:
        return held, timedelta(0)  # the phase changed meanwhile; decide again with the current row
    if held.view.phase in ON_CLUSTER and not backfill_logs(held, seen=seen, cluster=cluster, now=clock()):
        return held, STOP_TICK  # logs are deleted with their pods: read them first
    was_applied = held.view.applied_at is not None
    try:
        held = converge(held, step=step, store=store, cluster=cluster, clock=clock)
    except Unreachable as error:
        _report(held, error, store=store)
        return held, UNREACHABLE_TICK
    except Refused as error:
        measures.failed("visit", error)
        if held.view.applied_at is not None:  # only a replacement was refused; the other replicas go on without it
            log.warning("job %s: %s", held.job, error)
            return held, UNREACHABLE_TICK
        stop = Step(Phase.STOPPING, StopReason.FAILED, str(error), timedelta(0), is_failure=True)
        return store.record(held, seen=seen, step=stop, now=clock()), timedelta(0)
    if not was_applied and held.view.applied_at is not None and seen.replicas:
        # The visit that created them died before it recorded that, and their later changes rang for nobody: look again.
        return held, timedelta(0)
    return held, step.requeue_after


def _report(held: Held, error: Unreachable, *, store: Store) -> None:
    measures.failed("visit", error)
    log.warning("job %s: %s", held.job, error)
    store.report_trouble(held, str(error))


def observe(held: Held, cluster: Cluster) -> Seen:
    if held.view.phase not in ON_CLUSTER:
        return Seen()
    with faultpoints.around("cluster.observe"):
        return cluster.observe(held.ref, held.expected)


def converge(held: Held, *, step: Step, store: Store, cluster: Cluster, clock: Callable[[], datetime]) -> Held:
    """Make the cluster match what was recorded. Every call here may be a repetition."""
    if _has_to_create(held.view):
        try:
            plan = store.plan(held)
            with faultpoints.around("cluster.apply"):
                message = cluster.apply(plan)
            if message:
                store.note(held, message)
        except Sealed as error:
            measures.failed("visit", error)
            log.info("job %s: attempt %s was closed meanwhile", held.job, held.view.attempt)
            return held
        return store.record_applied(held, now=clock())
    if held.view.phase is Phase.STOPPING:
        with faultpoints.around("cluster.delete"):
            cluster.delete(held.ref, held.grace_seconds, is_now=step.is_now)
    elif step.end_replicas:
        with faultpoints.around("cluster.end_replicas"):
            cluster.end_replicas(held.ref, list(step.end_replicas), held.grace_seconds)
    return held


def _has_to_create(view: JobView) -> bool:
    """True if the attempt itself, or replacement replicas of it, must be created."""
    if view.phase not in (Phase.STARTING, Phase.RUNNING):
        return False
    return bool(unconfirmed(view.places)) or (view.phase is Phase.STARTING and view.applied_at is None)
