"""Insert the rows of a new attempt with INSERT ... SELECT: a large job has tens of thousands of similar rows."""

from typing import Any

from django.db import connection

from common.db import sql
from jobs.core.verdict import RoleView
from jobs.models import Rank, Replica
from jobs.models.inserts import begun, defaults

_REPLICA, _REPLICA_DEFAULTS, _REPLICA_REST = begun(Replica, ("job_id", "attempt", "role", "index", "name"))
_INSERT_REPLICAS = sql.load("jobs/sql/insert_replicas.sql", columns=_REPLICA, defaults=_REPLICA_DEFAULTS)
_RANK, _RANK_DEFAULTS, _RANK_REST = begun(Rank, ("replica_id", "job_id", "attempt", "rank", "local_rank"))
_INSERT_RANKS = sql.load("jobs/sql/insert_ranks.sql", columns=_RANK, defaults=_RANK_DEFAULTS)


def insert(*, job: int, run: str, attempt: int, role: RoleView) -> None:
    """Insert the rows of a role's replicas, and those of the ranks in each of them."""
    place: dict[str, Any] = {"job": job, "attempt": attempt, "role": role.name}
    replicas = {"prefix": f"{run}-{attempt}-{role.name}-", "replicas": role.replicas, **defaults(_REPLICA_REST)}
    ranks = {"first_rank": role.first_rank, "processes": role.processes, **defaults(_RANK_REST)}
    with connection.cursor() as cursor:
        cursor.execute(_INSERT_REPLICAS, {**place, **replicas})
        cursor.execute(_INSERT_RANKS, {**place, **ranks})
