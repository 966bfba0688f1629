"""Read and write the rows of one replica for ingest, with two statements per batch."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from django.db import connection

from jobs.core import unexpected_ranks
from jobs.core.agent_identity import AgentIdentity
from jobs.core.batch import LAUNCHER
from jobs.core.lifecycle import HOLDS_QUOTA
from jobs.models import Rank, RankState
from jobs.models.inserts import begun, values

from .translate import SAMPLED, Baseline, RowChanges, StreamPosition

_READ = """
    SELECT r.id, r.batch_seq, j.id, j.team_id, j.attempt, j.phase, extract(epoch FROM j.created_at)::float8, p.positions,
        r.lines_before, r.mirrored_at IS NOT NULL, r.unexpected_ranks, r.unexpected_lines,
        COALESCE(NULLIF((SELECT sum((one.role->>'replicas')::int * (one.role->>'processes')::int)::int
            FROM jsonb_array_elements(j.roles) AS one(role)), 0), j.slots),
        extract(epoch FROM COALESCE(r.closed_at, CASE WHEN r.attempt < j.attempt THEN j.launched_at
            ELSE COALESCE(j.finished_at, j.phase_since) END))::float8, r.closed_at IS NOT NULL,
        j.logs_collected_at IS NOT NULL, r.is_restored, r.unjudged_at IS NOT NULL
    FROM jobs_replica r JOIN jobs_job j ON j.id = r.job_id, LATERAL (
        SELECT json_agg(json_build_array(rank, line, extract(epoch FROM at), state, restarts, {sampled})) AS positions FROM (
            SELECT rank, lines AS line, last_line_at AS at, state, restarts, {sampled} FROM jobs_rank
            WHERE replica_id = r.id
            UNION ALL
            (SELECT rank, first_line + lines, last_at, '', 0, {none_sampled} FROM jobs_logsegment
             WHERE replica_id = r.id AND rank = -1 ORDER BY first_line DESC LIMIT 1)
        ) streams
    ) p
    WHERE j.id = %s AND j.uid = %s AND r.attempt = %s AND r.role = %s AND r.index = %s
        AND r.incarnation = %s
"""
_READ = _READ.replace("{sampled}", ", ".join(SAMPLED)).replace("{none_sampled}", ", ".join(["NULL"] * len(SAMPLED)))

# All or nothing, and once: if the batch number differs from the one read, or the place was given to another agent, no
# row is written.
_WRITE = """
    WITH batch AS (
        SELECT %(changes)s::json AS changes
    ), news AS (
        SELECT %(has_failed)s OR (%(may_matter)s AND EXISTS (
            SELECT FROM jobs_replica r JOIN jobs_attemptfailure f USING (job_id, attempt) WHERE r.id = %(replica)s)) AS is_for_judge
    ), won AS (
        UPDATE jobs_replica SET batch_seq = %(seq)s, is_restored = is_restored AND %(seq)s = %(before)s, log_bytes = log_bytes + %(stored)s,
            last_batch_at = CASE WHEN %(seq)s > %(before)s THEN now() ELSE last_batch_at END,
            mirrored_at = CASE WHEN %(seq)s > %(before)s THEN mirrored_at ELSE now() END,
            unexpected_ranks = COALESCE(CASE WHEN %(is_over)s OR closed_at IS NOT NULL OR state IN {replica_ended}
                THEN %(unexpected_of_ended)s ELSE %(unexpected)s END::jsonb, unexpected_ranks),
            unexpected_lines = unexpected_lines + %(unexpected_lines)s, nodes = COALESCE(%(nodes)s::jsonb, nodes),
            unjudged_at = CASE WHEN (SELECT is_for_judge FROM news) THEN clock_timestamp() ELSE unjudged_at END
        WHERE id = %(replica)s AND batch_seq = %(before)s AND incarnation = %(incarnation)s RETURNING id, job_id, attempt, %(is_over)s OR closed_at IS NOT NULL AS is_over
    ), segment AS (
        INSERT INTO jobs_logsegment
            (job_id, attempt, replica_id, rank, first_line, lines, first_at, last_at, raw_bytes, path, "offset", size_bytes)
        SELECT won.job_id, won.attempt, won.id, s.rank, s.first_line, s.lines, to_timestamp(s.first_at),
            to_timestamp(s.last_at), s.raw_bytes, CASE WHEN s.is_text THEN %(path)s ELSE '' END, s."offset", s.size_bytes
        FROM won, batch, json_to_recordset(batch.changes->'segments') AS s(rank int, first_line bigint, lines int,
            first_at float8, last_at float8, raw_bytes int, is_text bool, "offset" int, size_bytes int)
    ), chunk AS (
        INSERT INTO jobs_metricchunk (job_id, attempt, rank, name, times, steps, values)
        SELECT won.job_id, won.attempt, c.rank, c.name, c.times, c.steps, c.values
        FROM won, batch, json_to_recordset(batch.changes->'chunks') AS c(rank int, name text, times float8[], steps bigint[],
            values float8[])
    ), told AS (
        UPDATE jobs_rank r SET
            state = CASE WHEN {takes} THEN t.state ELSE r.state END,
            restarts = CASE WHEN {takes} THEN GREATEST(t.restart, r.restarts) ELSE r.restarts END,
            pid = CASE WHEN {takes} THEN COALESCE(t.pid, r.pid) ELSE r.pid END,
            world_rank = CASE WHEN {takes} THEN COALESCE(t.world_rank, r.world_rank) ELSE r.world_rank END,
            world_size = CASE WHEN {takes} THEN COALESCE(t.world_size, r.world_size) ELSE r.world_size END,
            started_at = CASE WHEN {takes} AND t.state = 'running' THEN to_timestamp(t.at) ELSE r.started_at END,
            ended_at = CASE WHEN {takes} THEN CASE WHEN t.state IN {ended} THEN to_timestamp(t.at) END ELSE r.ended_at END,
            exit_code = CASE WHEN {takes} THEN t.exit_code ELSE r.exit_code END,
            signal = CASE WHEN {takes} THEN t.signal ELSE r.signal END,
            error_at = CASE WHEN {takes} THEN to_timestamp(t.error_at) ELSE r.error_at END,
            is_connection_error = CASE WHEN {takes} THEN t.is_connection_error ELSE r.is_connection_error END,
            is_stopped = CASE WHEN {takes} THEN t.is_stopped ELSE r.is_stopped END,
            error = CASE WHEN {takes} THEN t.error ELSE r.error END,
            step = COALESCE(t.step, r.step),
            last_line_at = COALESCE(to_timestamp(t.last_line_at), r.last_line_at),
            lines = COALESCE(t.lines, r.lines),
            cpu = COALESCE(t.cpu, r.cpu),
            rss_bytes = COALESCE(t.rss_bytes, r.rss_bytes),
            gpu = COALESCE(t.gpu, r.gpu),
            gpu_mem_bytes = COALESCE(t.gpu_mem_bytes, r.gpu_mem_bytes),
            gpu_mem_total_bytes = COALESCE(t.gpu_mem_total_bytes, r.gpu_mem_total_bytes),
            gpu_watts = COALESCE(t.gpu_watts, r.gpu_watts), gpu_celsius = COALESCE(t.gpu_celsius, r.gpu_celsius),
            gpu_ecc_errors = COALESCE(t.gpu_ecc_errors, r.gpu_ecc_errors), gpu_xid = COALESCE(t.gpu_xid, r.gpu_xid)
        FROM won, batch, json_to_recordset(batch.changes->'ranks') AS t(rank int, state text, restart int, pid int, world_rank int, world_size int, at float8,
            exit_code int, signal int, error_at float8, is_connection_error bool, is_stopped bool, error jsonb, step bigint,
            last_line_at float8, lines bigint, cpu float8, rss_bytes bigint, gpu float8, gpu_mem_bytes bigint,
            gpu_mem_total_bytes bigint, gpu_watts float8, gpu_celsius float8, gpu_ecc_errors bigint, gpu_xid int)
        WHERE r.replica_id = won.id AND r.rank = t.rank
    )
    SELECT (SELECT count(*) FROM won), is_for_judge FROM news
"""
# The batch was read against the row as it was (translate.py); the reconciler may have closed the attempt since then.
_TAKES = """(t.state IS NOT NULL AND CASE WHEN won.is_over THEN r.state NOT IN {ended} AND t.state IN {ended}
    ELSE r.state NOT IN {ended} OR t.restart > r.restarts END)"""
_ENDED = "('succeeded', 'failed')"
_REPLICA_ENDED = "('succeeded', 'failed', 'lost')"  # a replica may end after it was read
_WRITE = _WRITE.replace("{takes}", _TAKES).replace("{ended}", _ENDED).replace("{replica_ended}", _REPLICA_ENDED)

_RANK, _RANK_GIVEN, _RANK_REST = begun(Rank, ("replica_id", "job_id", "attempt", "rank", "local_rank"))
_ADD_RANKS = f"""
    INSERT INTO jobs_rank ({_RANK})
    SELECT r.id, r.job_id, r.attempt, n.rank, n.local_rank, {_RANK_GIVEN}
    FROM jobs_replica r, json_to_recordset(%s) AS n(rank int, local_rank int)
    WHERE r.id = %s AND r.incarnation = %s AND r.closed_at IS NULL AND r.state NOT IN {_REPLICA_ENDED}
    ON CONFLICT (job_id, attempt, rank) DO NOTHING
"""  # noqa: S608 - column names of our own model

_NAMES = """
    WITH RECURSIVE found(attempt, name) AS (
        (SELECT attempt, name FROM jobs_metricchunk WHERE job_id = %(job)s ORDER BY attempt, name LIMIT 1)
        UNION ALL
        SELECT next.attempt, next.name FROM found CROSS JOIN LATERAL (
            SELECT c.attempt, c.name FROM jobs_metricchunk c
            WHERE c.job_id = %(job)s AND (c.attempt, c.name) > (found.attempt, found.name)
            ORDER BY c.attempt, c.name LIMIT 1
        ) next
    )
    SELECT DISTINCT name FROM found
"""


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
    uid = identity.run.partition("-")[2]
    with connection.cursor() as cursor:
        cursor.execute(
            _READ, [identity.job, uid, identity.attempt, identity.role, identity.index, identity.incarnation]
        )
        row = cursor.fetchone()
    if row is None:
        return None
    replica, seq, job, team, attempt, phase, since, positions, before, is_mirrored, kept, kept_lines, world, *end = row
    ended_at, is_closed, is_log_deleted, is_restored, is_unjudged = end
    is_over = is_closed or attempt != identity.attempt or phase not in HOLDS_QUOTA
    by_rank = {
        rank: StreamPosition(line, at or 0.0, state, restarts, tuple(sampled))
        for rank, line, at, state, restarts, *sampled in positions or ()
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

    None is added to a replica that has ended, and none that is another replica's.
    """
    ranks = json.dumps([{"rank": rank, "local_rank": local} for rank, local in found.items()])
    with connection.cursor() as cursor:
        cursor.execute(_ADD_RANKS, [*values(_RANK_REST), ranks, row.id, row.incarnation])
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
    which = {"replica": row.id, "seq": seq, "before": row.batch_seq, "incarnation": row.incarnation}
    which |= {"unexpected_lines": changes.unexpected_lines, "is_over": row.is_over}
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
