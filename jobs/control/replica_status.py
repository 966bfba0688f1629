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

from common import doorbell, faultpoints
from jobs.core.lifecycle import ON_CLUSTER
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, ReplicaUpdate

OLDEST_SECONDS = 30.0


def _listed(values: Iterable[str]) -> str:
    return ", ".join(f"'{one}'" for one in sorted(values))


# Our own words, in the statements themselves: a busy cluster asks twenty times a second, and nothing needs quoting.
_UP = _listed([ReplicaState.RUNNING.value, ReplicaState.SUCCEEDED.value])
_ENDED = _listed(state.value for state in ENDED)
_PHASES = _listed(phase.value for phase in ON_CLUSTER)

_TOLD = """
    WITH told AS (
        SELECT * FROM json_to_recordset(%(said)s::json) AS t(job bigint, uid text, attempt int, role text, index int,
            incarnation int, state text, exit_code int, signal int, reason text, node text, version bigint)
    )
"""
_CHANGED = f"""
    , changed AS (
        UPDATE jobs_replica r SET
            state = t.state, exit_code = t.exit_code, signal = t.signal, reason = t.reason,
            node = CASE WHEN t.node = '' THEN r.node ELSE t.node END,
            started_at = CASE WHEN t.state = 'running' THEN COALESCE(r.started_at, %(now)s) ELSE r.started_at END,
            ended_at = CASE WHEN t.state IN ({_ENDED}) THEN COALESCE(r.ended_at, %(now)s) ELSE r.ended_at END,
            seen_version = t.version, seen_at = %(now)s
        FROM ours t
        WHERE r.job_id = t.job AND r.attempt = t.attempt AND r.role = t.role AND r.index = t.index
            AND r.incarnation = t.incarnation
            AND (t.version >= r.seen_version OR t.version = 0 OR r.seen_at < %(oldest)s)
            AND (r.state, r.exit_code, r.signal, r.reason, r.node) IS DISTINCT FROM
                (t.state, t.exit_code, t.signal, t.reason, CASE WHEN t.node = '' THEN r.node ELSE t.node END)
        RETURNING r.id, r.job_id, r.state
    ), closed AS (
        -- Ranks of a replica that an elastic job lost, whose end nobody told: the others go on, and do not wait for them.
        UPDATE jobs_rank k SET state = 'failed', is_stopped = true, ended_at = %(now)s
        FROM changed c JOIN jobs_job j ON j.id = c.job_id
        WHERE k.replica_id = c.id AND k.state = 'running' AND c.state IN ('failed', 'lost')
            AND j.spec->>'min_nodes' IS NOT NULL
    )
"""  # noqa: S608 - put together of what stands above
# Of a visit: it holds the job's lock already.
_RECORD = f"{_TOLD}, ours AS (SELECT * FROM told) {_CHANGED} SELECT DISTINCT job_id FROM changed"  # noqa: S608 - put together of what stands above
# Of the watcher, in one statement that is its own transaction: a busy cluster asks for twenty a second.
_WRITE = f"""{_TOLD}
    , held AS MATERIALIZED (
        SELECT id, team_id, uid, attempt, phase FROM jobs_job
        WHERE id IN (SELECT job FROM told) AND phase IN ({_PHASES}) ORDER BY id FOR NO KEY UPDATE
    ), ours AS (
        SELECT t.* FROM told t JOIN held j ON j.id = t.job AND j.uid = t.uid AND j.attempt = t.attempt
    ) {_CHANGED}
    SELECT j.id, j.team_id, j.phase = 'starting', j.phase = 'starting' AND NOT EXISTS (
        SELECT 1 FROM jobs_replica r LEFT JOIN changed c ON c.id = r.id
        WHERE r.job_id = j.id AND r.attempt = j.attempt AND COALESCE(c.state, r.state) NOT IN ({_UP}))
    FROM held j WHERE j.id IN (SELECT job_id FROM changed)
"""  # noqa: S608 - put together of what stands above
_WAITS = f"""
    SELECT j.id FROM jobs_job j WHERE j.id = ANY(%s) AND j.phase = 'starting' AND NOT EXISTS (
        SELECT 1 FROM jobs_replica r WHERE r.job_id = j.id AND r.attempt = j.attempt AND r.state NOT IN ({_UP}))
"""  # noqa: S608 - put together of what stands above


@dataclass(frozen=True)
class UpdateResult:
    """Jobs that are starting and had news; of these, those that wait for their last replica no more: a visit can say that
    they run. Where a visit wrote at the same moment, only `complete` knows."""

    starting: frozenset[int]
    complete: frozenset[int]


def write(updates: Iterable[ReplicaUpdate], *, now: datetime) -> UpdateResult:
    """The lock on jobs keeps the order that visits have: the job first, then its replicas. What is of an attempt that is over,
    or of a job that is not there, is left out.
    """
    said = [
        _said(job_of(one.run), one.attempt, one.seen, uid=one.run.partition("-")[2])
        for one in updates
        if one.seen.state is not ReplicaState.ABSENT
    ]
    with faultpoints.around("watcher.rows"), connection.cursor() as cursor:
        cursor.execute(_WRITE, _values(said, now=now))
        changed = cursor.fetchall()
    for job, team, _, _ in changed:
        doorbell.hint(job=job, team=team, what="state")
    return UpdateResult(
        starting=frozenset(job for job, _, is_starting, _ in changed if is_starting),
        complete=frozenset(job for job, _, _, is_complete in changed if is_complete),
    )


def record(job: int, attempt: int, looks: Iterable[ReplicaSeen], *, now: datetime) -> bool:
    """Of a visit, within a transaction that holds the job's lock. Whether anything was news."""
    said = [_said(job, attempt, one) for one in looks if one.state is not ReplicaState.ABSENT]
    if not said:
        return False
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, _values(said, now=now))
        return bool(cursor.fetchall())


def complete(jobs: Iterable[int]) -> set[int]:
    """Those that are still starting although every replica runs."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, [sorted(jobs)])
        return {job for (job,) in cursor.fetchall()}


def job_of(run: str) -> int:
    """The job's id at the head of its run's name."""
    return int(run.partition("-")[0])


def _values(said: list[dict[str, Any]], *, now: datetime) -> dict[str, Any]:
    oldest = now - timedelta(seconds=OLDEST_SECONDS)
    return {"said": json.dumps(said), "now": now, "oldest": oldest}


def _said(job: int, attempt: int, one: ReplicaSeen, *, uid: str = "") -> dict[str, Any]:
    return {
        "job": job, "uid": uid, "attempt": attempt, "role": one.role, "index": one.index,
        "incarnation": one.incarnation, "state": one.state.value, "exit_code": one.exit_code, "signal": one.signal,
        "reason": one.reason, "node": one.node, "version": one.version,
    }  # fmt: skip
