"""Read the log lines of silent replicas from their containers' own logs, through the cluster.

Runs as part of a visit, so in one process at a time, and outside of every transaction. Only silent replicas are read:
replicas whose agent has never reported, or not for a minute, or which were ended by a signal and may have lost unsent
lines. Each line is stored with its number (container_log_format.py), so another process can resume where a killed one
stopped.
"""

import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Q

from common import faultpoints
from common.errors import Unreachable
from jobs.clusters import Cluster
from jobs.core.agent_identity import AgentIdentity
from jobs.core.attempt_ref import AttemptRef
from jobs.core.batch import Item
from jobs.core.lifecycle import Phase
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, Seen
from jobs.ingest import apply, replica_rows
from jobs.ingest.container_log_format import ContainerLogReader
from jobs.ingest.notes import note_once
from jobs.models import Rank, RankState, Replica

from .reconciler import Held

log = logging.getLogger(__name__)

SILENT = timedelta(seconds=60)
NEVER_HEARD = timedelta(seconds=15)  # an agent sends its first batch with its first line
BUDGET_SECONDS = 3.0  # per visit; the remaining replicas are read by the next one
LAST_CHANCE = timedelta(seconds=60)  # how long pods wait for their logs to be read before they are deleted
OVERLAP_SECONDS = 2  # the API takes whole seconds, and the nodes' clocks differ
MOST_FAILURES, PAUSE_SECONDS = 3, 300.0  # consecutive failed reads, of any job, before reading is paused
MOST_REMEMBERED = 10_000


@dataclass
class ReadingState:
    """What this process remembers between visits. Another one begins without it."""

    failures: dict[str, int] = field(default_factory=dict)  # cluster -> consecutive ones; one alone pauses nothing
    paused: dict[str, float] = field(default_factory=dict)  # cluster -> when the pause ends, on the monotonic clock
    complete: set[tuple[AttemptRef, str, int, int]] = field(default_factory=set)  # ended replicas, read to the end


remembered = ReadingState()


@dataclass(frozen=True)
class SilentReplica:
    """A replica to read.

    `is_last` means that its pod is deleted next, or its place given to a new replica.
    """

    row: Replica
    seen: ReplicaSeen
    is_last: bool

    @property
    def place(self) -> tuple[str, int, int]:
        return self.row.role, self.row.index, self.row.incarnation

    @property
    def is_over(self) -> bool:
        return self.seen.state in ENDED


def backfill(held: Held, *, seen: Seen, cluster: Cluster, now: datetime) -> bool:
    """Read new lines for a bounded time.

    Returns False while replicas about to be deleted or replaced have lines left, for at most LAST_CHANCE.
    """
    if not cluster.HAS_LOGS or seen.as_of is None or _is_paused(held.cluster):
        return True
    silent = list(_silent(held, seen, now=now))
    secrets.SystemRandom().shuffle(silent)  # if time runs out, every replica still gets read eventually
    going = [held.view.phase_since if _is_stopping(held) else one.row.ended_at or now for one in silent if one.is_last]
    is_done = _read_all(held, silent, cluster=cluster)
    return is_done or not going or now - max(going) > LAST_CHANCE


def _is_stopping(held: Held) -> bool:
    return held.view.phase is Phase.STOPPING


def _silent(held: Held, seen: Seen, *, now: datetime) -> Iterable[SilentReplica]:
    there = {(one.role, one.index, one.incarnation): one for one in seen.replicas if _is_readable(one)}
    rows = Replica.objects.filter(job=held.job, attempt=held.view.attempt)
    if not any(_goes(held, one) for one in there.values()):
        rows = rows.filter(silent_rows(now))  # for a large gang whose agents report: none
    for row in rows if there else ():
        one = there.get((row.role, row.index, row.incarnation))
        if one is None or (held.ref, row.role, row.index, row.incarnation) in remembered.complete:
            continue
        is_last = _goes(held, one)
        if is_silent(row, now) or (is_last and _is_cut_off(row, one)):
            yield SilentReplica(row, one, is_last)


def _is_readable(one: ReplicaSeen) -> bool:
    return one.state in (ReplicaState.RUNNING, ReplicaState.SUCCEEDED, ReplicaState.FAILED)


def _goes(held: Held, one: ReplicaSeen) -> bool:
    """Return whether the pod is deleted next, or its place given to a new replica."""
    return _is_stopping(held) or (one.state is ReplicaState.FAILED and one.signal is not None)


def silent_rows(now: datetime) -> Q:
    """The database form of `is_silent`."""
    return Q(last_batch_at__lt=now - SILENT) | Q(last_batch_at=None, started_at__lt=now - NEVER_HEARD)


def is_silent(row: Replica, now: datetime) -> bool:
    """Return whether the agent has never reported, or not for long."""
    if row.last_batch_at is not None:
        return now - row.last_batch_at > SILENT
    return row.started_at is not None and now - row.started_at > NEVER_HEARD


def _is_cut_off(row: Replica, one: ReplicaSeen) -> bool:
    """Return whether the agent may not have sent everything before its replica ended."""
    return row.last_batch_at is None or row.mirrored_at is not None or one.signal is not None


def _read_all(held: Held, silent: list[SilentReplica], *, cluster: Cluster) -> bool:
    until, is_done = time.monotonic() + BUDGET_SECONDS, True
    for one in silent:
        if time.monotonic() > until:
            return False
        try:
            is_done &= _read(held, one, cluster=cluster)
            remembered.failures.pop(held.cluster, None)
        except Unreachable as error:
            is_done = False
            log.warning("job %s: %s", held.job, error)
            remembered.failures[held.cluster] = remembered.failures.get(held.cluster, 0) + 1
            if remembered.failures[held.cluster] >= MOST_FAILURES:
                return _give_up(held, str(error))
    return is_done


def _read(held: Held, one: SilentReplica, *, cluster: Cluster) -> bool:
    """Read one piece of one replica's log. Return whether nothing is left for now."""
    identity = AgentIdentity(held.job, held.run, held.view.attempt, one.row.role, one.row.index, one.row.incarnation)
    row = replica_rows.find(identity)
    if row is None:
        return True
    places = [place.at for place in row.positions.values() if place.at]
    since = max(places) - OVERLAP_SECONDS if places and not (one.is_last and one.is_over) else None
    reading, is_end = _call(held, one, row, cluster=cluster, since=since)
    if reading.has_hole and since is not None:  # clocks are unreliable, line numbers are not
        reading, is_end = _call(held, one, row, cluster=cluster, since=None)
    items = [*_states(one, row, reading, is_end=is_end), *reading.items()]
    if not items:
        _remember(held, one, is_end=is_end)
        return is_end
    if not apply.apply_container_log(identity=identity, row=row, items=tuple(items)):
        return False
    if row.batch_seq == 0:
        note_once(job=held.job, attempt=held.view.attempt, about=_ABOUT, message=_UNHEARD.format(cluster.control_url))
    else:
        note_once(job=held.job, attempt=held.view.attempt, about=_ABOUT_LOST, message=_LOST)
    _remember(held, one, is_end=is_end)
    return is_end


_ABOUT = "Agents of this job cannot reach the control plane"
_UNHEARD = " at {}: states come from the pods, and log lines from the containers' logs, read every few seconds; there are no metrics."
_ABOUT_LOST = "An agent stopped reporting"
_LOST = ": lines that it had not sent were read from its container's log."
_ABOUT_UNREAD = "Log lines cannot be read from the containers"


def _call(
    held: Held, one: SilentReplica, row: replica_rows.ReplicaRow, *, cluster: Cluster, since: float | None
) -> tuple[ContainerLogReader, bool]:
    reading = ContainerLogReader(row.own_positions)
    with faultpoints.around("cluster.read_log"):
        is_end = cluster.read_log(held.ref, one.place, since, reading.take)
    return reading, is_end


def _states(
    one: SilentReplica, row: replica_rows.ReplicaRow, reading: ContainerLogReader, *, is_end: bool
) -> Iterable[Item]:
    """Yield rank states derived from the log and the pod.

    A rank that prints is running. If the pod ended with code 0, its ranks succeeded: the launcher vouches for them.
    """
    if row.batch_seq == 0:
        for rank, at in reading.began.items():
            if rank >= 0:
                yield _rank(rank, state="running", at=at)
    if is_end and one.seen.state is ReplicaState.SUCCEEDED:
        open_ranks = Rank.objects.filter(replica=one.row).exclude(state__in=[RankState.SUCCEEDED, RankState.FAILED])
        for rank in open_ranks.values_list("rank", flat=True):
            yield _rank(rank, state="succeeded", exit_code=0)


def _rank(rank: int, **fields: object) -> Item:
    return Item("rank", {"kind": "rank", "rank": rank, **fields})


def _remember(held: Held, one: SilentReplica, *, is_end: bool) -> None:
    if is_end and one.is_last and one.is_over:
        if len(remembered.complete) >= MOST_REMEMBERED:
            remembered.complete.clear()
        remembered.complete.add((held.ref, *one.place))


def _is_paused(cluster: str) -> bool:
    return time.monotonic() < remembered.paused.get(cluster, 0.0)


def _give_up(held: Held, why: str) -> bool:
    """Pause reading for this cluster, so that no visit waits for unreadable logs."""
    remembered.failures.pop(held.cluster, None)
    remembered.paused[held.cluster] = time.monotonic() + PAUSE_SECONDS
    note_once(job=held.job, attempt=held.view.attempt, about=_ABOUT_UNREAD, message=f": {why}")
    return True
