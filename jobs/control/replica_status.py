"""Write replica status reported by clusters to the database: in bulk, changes only, never older over newer.

There are two writers: the watcher and visits, each from its own watch. Where a cluster numbers its states (`version`),
the larger number wins. The numbering may restart when a cluster is restored from a backup: after OLDEST_SECONDS any
state is newer than the row, because no cached view that old is used (clusters/kubernetes/informers.py).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from common import faultpoints
from common.signals import doorbell
from jobs.core.lifecycle import ON_CLUSTER
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, ReplicaUpdate

OLDEST_SECONDS = 30.0
FINAL_VERSION = 2**62  # of a state that no report on its way may replace


def _listed(values: Iterable[str]) -> str:
    return ", ".join(f"'{one}'" for one in sorted(values))


# Our own constants, inlined into the statements: a busy cluster runs them twenty times a second, and none needs
# quoting.
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
            AND j.roles @? '$[*] ? (@.least != null)'
    )
"""  # noqa: S608 - put together of what stands above
# Used by a visit, which holds the job's lock already.
_RECORD = f"{_TOLD}, ours AS (SELECT * FROM told) {_CHANGED} SELECT DISTINCT job_id FROM changed"  # noqa: S608 - put together of what stands above
# Used by the watcher: one statement that is its own transaction, as a busy cluster needs twenty of them a second.
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
    """Jobs in phase STARTING that changed.

    `complete` is the subset whose last replica came up, so that a visit can mark them running. If a visit wrote at the
    same moment, only the function `complete` is reliable.
    """

    starting: frozenset[int]
    complete: frozenset[int]


def write(updates: Iterable[ReplicaUpdate], *, now: datetime) -> UpdateResult:
    """Write replica status updates from the watcher.

    Locks jobs before replicas, in the same order as reconciler visits, to avoid deadlocks. Updates of an attempt that
    is over, or of a job that does not exist, are ignored.
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
    """Write the replica states a visit observed. Return whether any changed.

    Runs in the visit's transaction, which holds the job's lock.
    """
    said = [_said(job, attempt, one) for one in looks if one.state is not ReplicaState.ABSENT]
    if not said:
        return False
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, _values(said, now=now))
        return bool(cursor.fetchall())


def complete(jobs: Iterable[int]) -> set[int]:
    """Return the jobs still in phase STARTING although all their replicas are up."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, [sorted(jobs)])
        return {job for (job,) in cursor.fetchall()}


def job_of(run: str) -> int:
    """Return the job id that a run's name begins with."""
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
