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
from common.db import sql
from common.signals import doorbell
from jobs.core.lifecycle import ON_CLUSTER
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, ReplicaUpdate

OLDEST_SECONDS = 30.0
FINAL_VERSION = 2**62  # of a state that no report on its way may replace
_UP = [ReplicaState.RUNNING.value, ReplicaState.SUCCEEDED.value]
_ENDED = sorted(state.value for state in ENDED)
_PHASES = sorted(phase.value for phase in ON_CLUSTER)
_PARTS = {
    "reported": sql.load("jobs/sql/parts/reported_replicas.sql"),
    "changed": sql.load("jobs/sql/parts/changed_replicas.sql"),
}
_RECORD = sql.load("jobs/sql/record_replica_status.sql", **_PARTS)
_WRITE = sql.load("jobs/sql/write_replica_status.sql", **_PARTS)
_COMPLETE = sql.load("jobs/sql/complete_jobs.sql")


@dataclass(frozen=True)
class UpdateResult:
    """Jobs in phase STARTING that changed.

    `complete` is the subset whose last replica came up, so that a visit can mark them running. If a visit wrote at the
    same moment, only the function `complete` is reliable.
    """

    starting: frozenset[int]
    complete: frozenset[int]


def write(updates: Iterable[ReplicaUpdate], *, cluster: str, now: datetime) -> UpdateResult:
    """Write replica status updates that the watcher of a cluster received.

    Locks jobs before replicas, in the same order as reconciler visits, to avoid deadlocks. Updates of an attempt that
    is over, or of a job that does not exist, are ignored.
    """
    states = [
        _state(job_of(one.run), one.attempt, one.seen, uid=one.run.partition("-")[2], namespace=one.namespace)
        for one in updates
        if one.seen.state is not ReplicaState.ABSENT
    ]
    with faultpoints.around("watcher.rows"), connection.cursor() as cursor:
        cursor.execute(_WRITE, {**_values(states, now=now), "cluster": cluster, "phases": _PHASES, "up": _UP})
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
    states = [_state(job, attempt, one) for one in looks if one.state is not ReplicaState.ABSENT]
    if not states:
        return False
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, _values(states, now=now))
        return bool(cursor.fetchall())


def complete(jobs: Iterable[int]) -> set[int]:
    """Return the jobs still in phase STARTING although all their replicas are up."""
    with connection.cursor() as cursor:
        cursor.execute(_COMPLETE, {"jobs": sorted(jobs), "up": _UP})
        return {job for (job,) in cursor.fetchall()}


def job_of(run: str) -> int:
    """Return the job id that a run's name begins with."""
    return int(run.partition("-")[0])


def _values(states: list[dict[str, Any]], *, now: datetime) -> dict[str, Any]:
    oldest = now - timedelta(seconds=OLDEST_SECONDS)
    return {"states": json.dumps(states), "now": now, "oldest": oldest, "ended": _ENDED}


def _state(job: int, attempt: int, one: ReplicaSeen, *, uid: str = "", namespace: str = "") -> dict[str, Any]:
    return {
        "job": job, "uid": uid, "attempt": attempt, "role": one.role, "index": one.index,
        "incarnation": one.incarnation, "state": one.state.value, "exit_code": one.exit_code, "signal": one.signal,
        "reason": one.reason, "node": one.node, "version": one.version, "namespace": namespace,
    }  # fmt: skip
