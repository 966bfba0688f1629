"""Rows of the ranks of a new attempt, made by the database itself: a large job has tens of thousands, all alike."""

from django.db import connection

from .models import Rank

_PLACES = ("replica_id", "job_id", "attempt", "rank", "local_rank")
_REST = [one for one in Rank._meta.concrete_fields if not one.primary_key and one.column not in _PLACES]
_COLUMNS = ", ".join(f'"{name}"' for name in (*_PLACES, *(one.column for one in _REST)))
_GIVEN = ", ".join(["%s"] * len(_REST))
_INSERT = f"""
    INSERT INTO jobs_rank ({_COLUMNS})
    SELECT r.id, r.job_id, r.attempt, r.index * %s + local, local, {_GIVEN}
    FROM jobs_replica r, generate_series(0, %s - 1) AS local
    WHERE r.job_id = %s AND r.attempt = %s AND r.role = %s
"""  # noqa: S608 - column names of our own model


def insert(*, job: int, attempt: int, role: str, processes: int) -> None:
    """`processes` for each replica of the role; what else a rank has begins as the model says."""
    beginnings = [one.get_db_prep_save(one.get_default(), connection) for one in _REST]
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [processes, *beginnings, processes, job, attempt, role])
