"""Read and write the rows of one replica for ingest, with two statements per batch."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from django.db import connection

from common.db import sql
from jobs.core import unexpected_ranks
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import LAUNCHER
from jobs.core.lifecycle import HOLDS_QUOTA
from jobs.core.silence import IDLE
from jobs.core.verdict import ENDED
from jobs.models import Rank, RankState
from jobs.models.inserts import begun, defaults

from .translate import SAMPLED, Baseline, RowChanges, StreamPosition

_READ = sql.load(
    "jobs/sql/read_replica.sql", sampled=", ".join(SAMPLED), none_sampled=", ".join(["NULL"] * len(SAMPLED))
)
_RANK_ENDED = ", ".join(f"'{state.value}'" for state in (RankState.SUCCEEDED, RankState.FAILED))
_TAKES = sql.load("jobs/sql/parts/report_takes.sql", ended=_RANK_ENDED)
_WRITE = sql.load("jobs/sql/write_batch.sql", takes=_TAKES, ended=_RANK_ENDED)
_REPLICA_ENDED = sorted(state.value for state in ENDED)

_RANK, _RANK_DEFAULTS, _RANK_REST = begun(Rank, ("replica_id", "job_id", "attempt", "rank", "local_rank"))
_ADD_RANKS = sql.load("jobs/sql/add_unexpected_ranks.sql", columns=_RANK, defaults=_RANK_DEFAULTS)
_NAMES = sql.load("jobs/sql/series_names_of_job.sql")


class ReplicaRow(NamedTuple):
    id: int
    batch_seq: int
    job: int
    team: int
    is_over: bool  # the attempt is over: the agent must stop
    ended_at: float  # when the attempt ended, in seconds since the epoch; only valid if it is over
    since: float
    positions: dict[int, StreamPosition]
    incarnation: int
    before: dict[int, int]
    is_mirrored: bool = False  # some of its lines were read from its container's own log
    is_log_deleted: bool = False
    unexpected: dict[str, Any] = {}
    is_restored: bool = False  # from a backup: batches that its agent has sent since may be lost
    is_unjudged: bool = False  # the verdict does not yet take account of what its agent reported
    world: int = 1  # planned processes of the job; slots where its framework plans none

    @property
    def own_positions(self) -> dict[int, StreamPosition]:
        """Positions as the place's current agent counts them: from 0 even if another agent came before it."""
        return {
            rank: replace(position, line=position.line - self.before.get(rank, 0))
            for rank, position in self.positions.items()
        }

    def baseline(self, names: frozenset[str]) -> Baseline:
        return Baseline(self.positions, self.since, names, self.before, self.unexpected, self.is_over, self.is_restored)

    def is_next(self, seq: int) -> bool:
        """Return whether a batch continues what is here; behind a backup's end any later one does."""
        return seq == self.batch_seq + 1 or (self.is_restored and seq > self.batch_seq)


def find(identity: AgentIdentity) -> ReplicaRow | None:
    given: dict[str, Any] = {
        "job": identity.job, "uid": identity.run.partition("-")[2], "attempt": identity.attempt,
        "role": identity.role, "index": identity.index, "incarnation": identity.incarnation,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_READ, given)
        row = cursor.fetchone()
    if row is None:
        return None
    replica, seq, job, team, attempt, phase, since, positions, before, is_mirrored, kept, kept_lines, world, *end = row
    ended_at, is_closed, is_log_deleted, is_restored, is_unjudged = end
    is_over = is_closed or attempt != identity.attempt or phase not in HOLDS_QUOTA
    by_rank = {
        rank: StreamPosition(line, at or 0.0, state, restarts, nan_series, tuple(sampled))
        for rank, line, at, state, restarts, nan_series, *sampled in positions or ()
    }
    lines_before = {int(rank): lines for rank, lines in json.loads(before).items()}
    if kept_lines:
        lines_before[LAUNCHER] = lines_before.get(LAUNCHER, 0) + kept_lines
    return ReplicaRow(
        replica, seq, job, team, is_over, ended_at, since, by_rank, identity.incarnation, lines_before, is_mirrored,
        is_log_deleted, json.loads(kept), is_restored, is_unjudged, world,
    )  # fmt: skip


def add_ranks(row: ReplicaRow, found: Mapping[int, int]) -> bool:
    """Insert rows for ranks that nobody planned, by number with their local ranks; return whether any was new.

    None is added to a replica that has ended, and none that is another replica's, unless that still waits and this one's
    role has no ranks of its own.
    """
    ranks = json.dumps([{"rank": rank, "local_rank": local} for rank, local in found.items()])
    which: dict[str, Any] = {"replica": row.id, "incarnation": row.incarnation, "ended": _REPLICA_ENDED}
    with connection.cursor() as cursor:
        cursor.execute(_ADD_RANKS, {"ranks": ranks, **which, **defaults(_RANK_REST)})
        return bool(cursor.rowcount)


def write(row: ReplicaRow, *, seq: int, changes: RowChanges, path: str) -> bool | None:
    """Write all changes of a batch in one statement. Return None if another batch came first and nothing was written.

    Otherwise return whether the attempt has to be judged again: a rank failed, or there is a verdict that what was
    reported may change. The replica's row says so too, until a visit has judged. `seq` is the batch's number, or the current one for lines that are no batch of its agent.
    """
    rows = {
        "segments": changes.segments,
        "chunks": list(changes.chunks.values()),
        "ranks": list(changes.ranks.values()),
    }
    which: dict[str, Any] = {"replica": row.id, "seq": seq, "before": row.batch_seq, "incarnation": row.incarnation}
    which |= {"unexpected_lines": changes.unexpected_lines, "is_over": row.is_over, "replica_ended": _REPLICA_ENDED}
    states = {one["state"] for one in changes.ranks.values() if one.get("state")}
    # The launcher's last lines may say why its replica failed.
    has_last_words = row.is_over and any(one["rank"] == LAUNCHER for one in changes.segments)
    which |= {"has_failed": RankState.FAILED in states, "may_matter": bool(states) or has_last_words}
    kept = kept_of_ended = None
    if changes.unexpected is not None:
        kept = json.dumps(changes.unexpected)
        kept_of_ended = json.dumps(unexpected_ranks.in_ended_replica(row.unexpected, changes.unexpected))
    with connection.cursor() as cursor:
        given = {
            "changes": json.dumps(rows),
            "path": path,
            "idle": IDLE,
            "stored": changes.stored_bytes,
            "unexpected": kept,
            "unexpected_of_ended": kept_of_ended,
            "nodes": None if changes.nodes is None else json.dumps(changes.nodes),
            **which,
        }
        cursor.execute(_WRITE, given)
        count, is_for_judge = cursor.fetchone()
    return is_for_judge if count else None


MOST_JOBS = 1000
_names: "OrderedDict[int, frozenset[str]]" = OrderedDict()


def known_names(job: int) -> frozenset[str]:
    """Return the names of a job's series, cached per process: a query per batch would cost more than the writes."""
    if job not in _names:
        _names[job] = _series_names(job)
        while len(_names) > MOST_JOBS:
            _names.popitem(last=False)
    return _names[job]


def note_names(job: int, *, names: set[str]) -> None:
    """Add names to the cache after they were written."""
    if names:
        _names[job] = known_names(job) | names


def _series_names(job: int) -> frozenset[str]:
    """Return the names of a job's series, one index step each."""
    with connection.cursor() as cursor:
        cursor.execute(_NAMES, {"job": job})
        return frozenset(name for (name,) in cursor.fetchall())
