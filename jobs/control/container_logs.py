"""Log lines of replicas whose agents are not heard: from their containers' own logs, through the cluster.

Part of a visit, so one process does it at a time, and outside of every transaction. Only silent replicas are asked: never
heard from, or not for a minute, or ended by a signal together with what they had not sent. A line is stored with its number
(container_log_format.py), so where one process was killed the next one goes on.
"""

import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from common import faultpoints
from common.errors import Unreachable
from jobs.clusters import Cluster
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import Item
from jobs.core.lifecycle import Phase
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, Seen
from jobs.history import note_once
from jobs.ingest import apply, replica_rows
from jobs.ingest.container_log_format import Reading
from jobs.models import Rank, RankState, Replica

from .reconciler import Held

log = logging.getLogger(__name__)

SILENT = timedelta(seconds=60)
NEVER_HEARD = timedelta(seconds=15)  # an agent's first words come with its first line
BUDGET_SECONDS = 3.0  # of one visit; the rest of the replicas is the next one's
LAST_CHANCE = timedelta(seconds=60)  # so long pods that are to be deleted wait for being read
OVERLAP_SECONDS = 2  # the API takes whole seconds, and clocks of nodes differ
MOST_FAILURES, PAUSE_SECONDS = 3, 300.0  # so many reads in a row, of whichever job: nobody can read them for a while
MOST_REMEMBERED = 10_000

_failures: dict[str, int] = {}  # cluster -> reads in a row that failed: one slow answer is no reason to stop
_paused: dict[str, float] = {}  # cluster -> until when, on the monotonic clock
_complete: set[tuple[str, int, str, int, int]] = set()  # ended replicas read to their end, by this process


@dataclass(frozen=True)
class SilentReplica:
    """A replica to be read. `is_last`: after this its pod goes, or its place is given anew."""

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
    """Read what is new in one bounded turn. False while those that are to go still have something to read."""
    if not cluster.HAS_LOGS or seen.as_of is None or _is_paused(held.cluster):
        return True
    silent = list(_silent(held, seen, now=now))
    secrets.SystemRandom().shuffle(silent)  # where one turn is not enough, everybody's turn comes
    going = [held.view.phase_since if _is_stopping(held) else one.row.ended_at or now for one in silent if one.is_last]
    is_done = _read_all(held, silent, cluster=cluster)
    return is_done or not going or now - max(going) > LAST_CHANCE


def _is_stopping(held: Held) -> bool:
    return held.view.phase is Phase.STOPPING


def _silent(held: Held, seen: Seen, *, now: datetime) -> Iterable[SilentReplica]:
    there = {(one.role, one.index, one.incarnation): one for one in seen.replicas if _is_readable(one)}
    rows = Replica.objects.filter(job=held.job, attempt=held.view.attempt)
    if not any(_goes(held, one) for one in there.values()):
        rows = rows.filter(_silent_rows(now))  # of a large gang that is heard: none
    for row in rows if there else ():
        one = there.get((row.role, row.index, row.incarnation))
        if one is None or (held.run, held.view.attempt, row.role, row.index, row.incarnation) in _complete:
            continue
        is_last = _goes(held, one)
        if _is_silent(row, now) or (is_last and _is_cut_off(row, one)):
            yield SilentReplica(row, one, is_last)


def _is_readable(one: ReplicaSeen) -> bool:
    return one.state in (ReplicaState.RUNNING, ReplicaState.SUCCEEDED, ReplicaState.FAILED)


def _goes(held: Held, one: ReplicaSeen) -> bool:
    """Its pod is deleted next, or its place given anew."""
    return _is_stopping(held) or (one.state is ReplicaState.FAILED and one.signal is not None)


def _silent_rows(now: datetime) -> Q:
    """`_is_silent`, for the database."""
    return Q(last_batch_at__lt=now - SILENT) | Q(last_batch_at=None, started_at__lt=now - NEVER_HEARD)


def _is_silent(row: Replica, now: datetime) -> bool:
    if row.last_batch_at is not None:
        return now - row.last_batch_at > SILENT
    return row.started_at is not None and now - row.started_at > NEVER_HEARD


def _is_cut_off(row: Replica, one: ReplicaSeen) -> bool:
    """It ends now, and whether its agent could say everything is not sure."""
    return row.last_batch_at is None or row.mirrored_at is not None or one.signal is not None


def _read_all(held: Held, silent: list[SilentReplica], *, cluster: Cluster) -> bool:
    until, is_done = time.monotonic() + BUDGET_SECONDS, True
    for one in silent:
        if time.monotonic() > until:
            return False
        try:
            is_done &= _read(held, one, cluster=cluster)
            _failures.pop(held.cluster, None)
        except Unreachable as error:
            is_done = False
            log.warning("job %s: %s", held.job, error)
            _failures[held.cluster] = _failures.get(held.cluster, 0) + 1
            if _failures[held.cluster] >= MOST_FAILURES:
                return _give_up(held, str(error))
    return is_done


def _read(held: Held, one: SilentReplica, *, cluster: Cluster) -> bool:
    """One replica, one piece. Returns whether there is nothing more for now."""
    identity = AgentIdentity(held.job, held.run, held.view.attempt, one.row.role, one.row.index, one.row.incarnation)
    row = replica_rows.find(identity)
    if row is None:
        return True
    places = [place.at for place in row.positions.values() if place.at]
    since = max(places) - OVERLAP_SECONDS if places and not (one.is_last and one.is_over) else None
    reading, is_end = _call(held, one, row, cluster=cluster, since=since)
    if reading.has_hole and since is not None:  # clocks cannot be relied upon: the numbers can
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


_ABOUT = "Agents of this job do not reach the control plane"
_UNHEARD = " at {}: states come from the pods and log lines from their containers' own logs, read every few seconds; there are no metrics."
_ABOUT_LOST = "An agent fell silent"
_LOST = ": what it had not sent of its ranks' lines was read from its container's own log."
_ABOUT_UNREAD = "Log lines cannot be read from the containers"


def _call(
    held: Held, one: SilentReplica, row: replica_rows.ReplicaRow, *, cluster: Cluster, since: float | None
) -> tuple[Reading, bool]:
    reading = Reading(row.own_positions)
    with faultpoints.around("cluster.read_log"):
        is_end = cluster.read_log(held.run, held.view.attempt, one.place, since, reading.take)
    return reading, is_end


def _states(one: SilentReplica, row: replica_rows.ReplicaRow, reading: Reading, *, is_end: bool) -> Iterable[Item]:
    """A rank that prints runs, and one of a pod that ended with code 0 has succeeded: its launcher vouches for it."""
    if row.batch_seq == 0:
        for rank, at in reading.began.items():
            if rank >= 0:
                yield _rank(rank, state="running", at=at)
    if is_end and one.seen.state is ReplicaState.SUCCEEDED:
        open_ranks = Rank.objects.filter(replica=one.row).exclude(state__in=[RankState.SUCCEEDED, RankState.FAILED])
        for rank in open_ranks.values_list("rank", flat=True):
            yield _rank(rank, state="succeeded", exit_code=0)


def _rank(rank: int, **said: object) -> Item:
    return Item("rank", {"kind": "rank", "rank": rank, **said})


def _remember(held: Held, one: SilentReplica, *, is_end: bool) -> None:
    if is_end and one.is_last and one.is_over:
        if len(_complete) >= MOST_REMEMBERED:
            _complete.clear()
        _complete.add((held.run, held.view.attempt, *one.place))


def _is_paused(cluster: str) -> bool:
    return time.monotonic() < _paused.get(cluster, 0.0)


def _give_up(held: Held, why: str) -> bool:
    """Nothing waits for logs that nobody can read."""
    _failures.pop(held.cluster, None)
    _paused[held.cluster] = time.monotonic() + PAUSE_SECONDS
    note_once(job=held.job, attempt=held.view.attempt, about=_ABOUT_UNREAD, message=f": {why}")
    return True
