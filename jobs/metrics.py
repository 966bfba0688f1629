"""Reading what training reported: one series per name and rank, thinned to what a chart can show."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connection

from .models import Job

MAX_POINTS = 500


@dataclass(frozen=True)
class Series:
    """Points are (time, step or None, value), oldest first."""

    name: str
    rank: int
    points: list[tuple[datetime, int | None, float]] = field(default_factory=list)


MAX_CHUNKS = 250  # of one series that a chart reads: its cost must not grow with the length of the training

# Of long series every k-th chunk, then every k-th point, and always the last of each: a chart ends where training stands.
_THINNED = """
    WITH numbered AS (
        SELECT id, name, rank, times, steps, values,
               row_number() OVER (PARTITION BY name, rank ORDER BY id DESC) AS back,
               count(*) OVER (PARTITION BY name, rank) AS total
        FROM jobs_metricchunk WHERE job_id = %s AND attempt = %s AND (%s OR name = ANY(%s))
    ), points AS (
        SELECT name, rank, at, step, value,
               row_number() OVER (PARTITION BY name, rank ORDER BY at DESC, id DESC) AS back,
               count(*) OVER (PARTITION BY name, rank) AS total
        FROM numbered, unnest(times, steps, values) AS p(at, step, value)
        WHERE back = 1 OR back %% GREATEST(1, CEIL(total / %s::numeric)::bigint) = 0
    )
    SELECT name, rank, to_timestamp(at), step, value FROM points
    WHERE back = 1 OR back %% GREATEST(1, CEIL(total / %s::numeric)::bigint) = 0
    ORDER BY name, rank, at, back DESC
"""


def series(
    *, job: Job, names: Iterable[str] | None = None, limit: int = MAX_POINTS, attempt: int | None = None
) -> list[Series]:
    """The series of one attempt (default: the newest), all or those named. Two attempts in one line would go back in time."""
    wanted = list(names) if names is not None else []
    which = job.attempt if attempt is None else attempt
    found: dict[tuple[str, int], Series] = {}
    with connection.cursor() as cursor:
        cursor.execute(_THINNED, [job.pk, which, names is None, wanted, MAX_CHUNKS, limit])
        for name, rank, at, step, value in cursor.fetchall():
            found.setdefault((name, rank), Series(name, rank)).points.append((at, step, value))
    return list(found.values())
