"""Insert the rows of a new attempt with INSERT ... SELECT: a large job has tens of thousands of similar rows."""

from typing import Any

from django.db import connection

from jobs.core.verdict import RoleView
from jobs.models import Rank, Replica
from jobs.models.inserts import begun, values

_REPLICA, _REPLICA_GIVEN, _REPLICA_REST = begun(Replica, ("job_id", "attempt", "role", "index", "name"))
_INSERT_REPLICAS = f"""
    INSERT INTO jobs_replica ({_REPLICA})
    SELECT %s, %s, %s, number, %s || number, {_REPLICA_GIVEN} FROM generate_series(0, %s - 1) AS number
"""  # noqa: S608 - column names of our own model
_RANK, _RANK_GIVEN, _RANK_REST = begun(Rank, ("replica_id", "job_id", "attempt", "rank", "local_rank"))
_INSERT_RANKS = f"""
    INSERT INTO jobs_rank ({_RANK})
    SELECT r.id, r.job_id, r.attempt, %s + r.index * %s + local, local, {_RANK_GIVEN}
    FROM jobs_replica r, generate_series(0, %s - 1) AS local
    WHERE r.job_id = %s AND r.attempt = %s AND r.role = %s
"""  # noqa: S608 - column names of our own model


def insert(*, job: int, run: str, attempt: int, role: RoleView) -> None:
    """Insert the rows of a role's replicas, and those of the ranks in each of them."""
    with connection.cursor() as cursor:
        places: list[Any] = [job, attempt, role.name, f"{run}-{attempt}-{role.name}-"]
        cursor.execute(_INSERT_REPLICAS, [*places, *values(_REPLICA_REST), role.replicas])
        numbers = [role.first_rank, role.processes, *values(_RANK_REST), role.processes]
        cursor.execute(_INSERT_RANKS, [*numbers, job, attempt, role.name])
