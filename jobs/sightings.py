"""What clusters say of replicas, written to their rows: many at once, only what is news, and never an older look over a newer.

Two write here: the watcher, from its watch, and visits, from theirs. Where a cluster numbers its looks (`version`) the larger one
wins. A number may also begin anew, when a cluster is restored from a backup: after OLDEST_SECONDS any look is newer
than the row, because no picture that old is believed (clusters/kubernetes.py).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from controlplane import crash, doorbell

from .lifecycle import ON_CLUSTER
from .verdict import ENDED, ReplicaSeen, ReplicaState, Sighting

OLDEST_SECONDS = 30.0
_UP = [ReplicaState.RUNNING.value, ReplicaState.SUCCEEDED.value]

_LOCK = """
    SELECT id, team_id, uid, attempt FROM jobs_job WHERE id = ANY(%s) AND phase = ANY(%s) ORDER BY id FOR NO KEY UPDATE
"""
_WRITE = """
    WITH told AS (
        SELECT * FROM json_to_recordset(%(said)s::json) AS t(job bigint, attempt int, role text, index int, state text,
            exit_code int, signal int, reason text, node text, incarnation int, version bigint)
    ), changed AS (
        UPDATE jobs_replica r SET
            state = t.state, exit_code = t.exit_code, signal = t.signal, reason = t.reason,
            node = CASE WHEN t.node = '' THEN r.node ELSE t.node END,
            started_at = CASE WHEN t.state = %(running)s THEN COALESCE(r.started_at, %(now)s) ELSE r.started_at END,
            ended_at = CASE WHEN t.state = ANY(%(ended)s) THEN COALESCE(r.ended_at, %(now)s) ELSE r.ended_at END,
            seen_version = t.version, seen_at = %(now)s
        FROM told t
        WHERE r.job_id = t.job AND r.attempt = t.attempt AND r.role = t.role AND r.index = t.index
            AND r.incarnation = t.incarnation
            AND (t.version >= r.seen_version OR t.version = 0 OR r.seen_at < %(oldest)s)
            AND (r.state, r.exit_code, r.signal, r.reason, r.node) IS DISTINCT FROM
                (t.state, t.exit_code, t.signal, t.reason, CASE WHEN t.node = '' THEN r.node ELSE t.node END)
        RETURNING r.id, r.job_id, r.state
    ), closed AS (
        -- Ranks of a replica that an elastic job lost, whose end nobody told: the others go on, and do not wait for them.
        UPDATE jobs_rank k SET state = %(failed)s, is_stopped = true, ended_at = %(now)s
        FROM changed c JOIN jobs_job j ON j.id = c.job_id
        WHERE k.replica_id = c.id AND k.state = %(running)s AND j.spec->>'min_nodes' IS NOT NULL AND c.state = ANY(%(lost)s)
    )
    SELECT DISTINCT job_id FROM changed
"""
_WAITS = """
    SELECT j.id FROM jobs_job j WHERE j.id = ANY(%s) AND j.phase = 'starting' AND NOT EXISTS (
        SELECT 1 FROM jobs_replica r WHERE r.job_id = j.id AND r.attempt = j.attempt AND r.state <> ALL(%s))
"""


@dataclass(frozen=True)
class _Row:
    team: int
    run: str
    attempt: int


def write(news: Iterable[Sighting], *, now: datetime) -> set[int]:
    """In one transaction. Returns the jobs that wait for their last replica no more: a visit can say that they run.

    The lock on jobs keeps the order that visits have: the job first, then its replicas. What is of an attempt that is over,
    or of a job that is not there, is left out.
    """
    news = list(news)
    jobs = sorted({job_of(one.run) for one in news})
    with crash.atomic("watcher.rows"):
        rows = _locked(jobs)
        ours = [one for one in news if _is_of(rows.get(job_of(one.run)), one)]
        changed = record(_grouped(ours), now=now)
        for job in changed:
            doorbell.hint(job=job, team=rows[job].team, what="state")
        return complete(changed)


def record(seen: dict[tuple[int, int], list[ReplicaSeen]], *, now: datetime) -> set[int]:
    """By job and attempt; within a transaction that holds the jobs' locks. Returns those with news."""
    said = [_said(*key, one) for key, looks in seen.items() for one in looks if one.state is not ReplicaState.ABSENT]
    if not said:
        return set()
    values: dict[str, Any] = {
        "said": json.dumps(said), "now": now, "oldest": now - timedelta(seconds=OLDEST_SECONDS),
        "running": ReplicaState.RUNNING.value, "failed": ReplicaState.FAILED.value,
        "ended": [state.value for state in ENDED], "lost": [ReplicaState.FAILED.value, ReplicaState.LOST.value],
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, values)
        return {job for (job,) in cursor.fetchall()}


def complete(jobs: Iterable[int]) -> set[int]:
    """Those that are still starting although every replica runs."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, [sorted(jobs), _UP])
        return {job for (job,) in cursor.fetchall()}


def job_of(run: str) -> int:
    """The job's id at the head of its run's name."""
    return int(run.partition("-")[0])


def _locked(jobs: list[int]) -> dict[int, _Row]:
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [jobs, sorted(ON_CLUSTER)])
        return {job: _Row(team, f"{job}-{uid}", attempt) for job, team, uid, attempt in cursor.fetchall()}


def _is_of(row: _Row | None, one: Sighting) -> bool:
    return row is not None and (row.run, row.attempt) == (one.run, one.attempt)


def _grouped(news: list[Sighting]) -> dict[tuple[int, int], list[ReplicaSeen]]:
    found: dict[tuple[int, int], list[ReplicaSeen]] = {}
    for one in news:
        found.setdefault((job_of(one.run), one.attempt), []).append(one.seen)
    return found


def _said(job: int, attempt: int, one: ReplicaSeen) -> dict[str, Any]:
    return {
        "job": job, "attempt": attempt, "role": one.role, "index": one.index, "state": one.state.value,
        "exit_code": one.exit_code, "signal": one.signal, "reason": one.reason, "node": one.node,
        "incarnation": one.incarnation, "version": one.version,
    }  # fmt: skip
