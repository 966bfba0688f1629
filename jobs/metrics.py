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


# Every k-th point of each series and always the last one, so that a chart ends where training stands.
_THINNED = """
    SELECT name, rank, at, step, value FROM (
        SELECT name, rank, at, step, value,
               row_number() OVER (PARTITION BY name, rank ORDER BY at, id) AS place,
               count(*) OVER (PARTITION BY name, rank) AS total
        FROM jobs_metricpoint WHERE job_id = %s AND (%s OR name = ANY(%s))
    ) AS numbered
    WHERE place = total OR place %% GREATEST(1, CEIL(total / %s::numeric)::bigint) = 0
    ORDER BY name, rank, at, place
"""


def series(*, job: Job, names: Iterable[str] | None = None, limit: int = MAX_POINTS) -> list[Series]:
    """All series of a job over all of its attempts, or those named."""
    wanted = list(names) if names is not None else []
    found: dict[tuple[str, int], Series] = {}
    with connection.cursor() as cursor:
        cursor.execute(_THINNED, [job.pk, names is None, wanted, limit])
        for name, rank, at, step, value in cursor.fetchall():
            found.setdefault((name, rank), Series(name, rank)).points.append((at, step, value))
    return list(found.values())
