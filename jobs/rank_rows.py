"""Rows of the ranks of a new attempt, made by the database itself: a large job has tens of thousands, all alike."""

from typing import Any

from django.db import connection

from .models import Rank

_PLACES = ("replica_id", "job_id", "attempt", "rank", "local_rank")


def insert(*, job: int, attempt: int, role: str, processes: int) -> None:
    """`processes` for each replica of the role; what else a rank has begins as the model says."""
    rest = _beginning()
    columns = ", ".join(f'"{name}"' for name in (*_PLACES, *rest))
    given = ", ".join(["%s"] * len(rest))
    statement = f"""
        INSERT INTO jobs_rank ({columns})
        SELECT r.id, r.job_id, r.attempt, r.index * %s + local, local, {given}
        FROM jobs_replica r, generate_series(0, %s - 1) AS local
        WHERE r.job_id = %s AND r.attempt = %s AND r.role = %s
    """  # noqa: S608 - column names of our own model
    with connection.cursor() as cursor:
        cursor.execute(statement, [processes, *rest.values(), processes, job, attempt, role])


def _beginning() -> dict[str, Any]:
    """Columns that do not say which rank it is, with their defaults."""
    fields = [one for one in Rank._meta.concrete_fields if not one.primary_key and one.column not in _PLACES]
    return {str(one.column): one.get_db_prep_save(one.get_default(), connection) for one in fields}
