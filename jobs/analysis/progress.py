"""How far a job is, where it reports its number of steps: `muster.report(step=120, total_steps=5000, loss=0.4)`.

`total_steps` is a series like any other, of which no chart is drawn; the steps of its values say how fast the job is.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from common.text import format_duration
from jobs.models import Job

SERIES = "total_steps"
RECENT_CHUNKS = 30  # of rank 0, about a second each: what the speed is taken from
_RECENT = """
    SELECT j.id, (array_agg(c.last_step ORDER BY c.id DESC))[1], (array_agg(c.total ORDER BY c.id DESC))[1],
           (array_agg(c.last_at ORDER BY c.id DESC))[1] - (array_agg(c.first_at ORDER BY c.id))[1],
           (array_agg(c.last_step ORDER BY c.id DESC))[1] - (array_agg(c.first_step ORDER BY c.id))[1]
    FROM unnest(%s::bigint[], %s::int[]) AS j(id, attempt)
    CROSS JOIN LATERAL (
        SELECT id, times[1] AS first_at, steps[1] AS first_step, times[cardinality(times)] AS last_at,
               steps[cardinality(steps)] AS last_step, values[cardinality(values)] AS total
        FROM jobs_metricchunk WHERE job_id = j.id AND attempt = j.attempt AND name = %s AND rank = 0
        ORDER BY id DESC LIMIT %s
    ) c GROUP BY j.id
"""


@dataclass(frozen=True)
class Progress:
    """`seconds_left` is None where the job has reported too little to tell, or has reported its last step."""

    step: int
    total: int
    seconds_left: float | None = None

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.step / self.total)

    @property
    def words(self) -> str:
        """Return the time left: "about 2 h 07 min left"; empty if it is not known."""
        return "" if self.seconds_left is None else f"about {format_duration(self.seconds_left)} left"


def progress(jobs: Iterable[Job]) -> dict[int, Progress]:
    """Return the progress of those jobs' newest attempts that report it, by the job's id; one query for all."""
    asked = [(job.pk, job.attempt) for job in jobs if job.attempt]
    if not asked:
        return {}
    ids, attempts = zip(*asked, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_RECENT, [list(ids), list(attempts), SERIES, RECENT_CHUNKS])
        return {job: found for job, *told in cursor.fetchall() if (found := _read(*told)) is not None}


def _read(step: int | None, total: float | None, seconds: float | None, steps: int | None) -> Progress | None:
    if step is None or total is None or not 1 <= total < 2**53:
        return None
    left = max(0, int(total) - step)
    is_known = bool(seconds and steps and seconds > 0 and steps > 0)
    return Progress(step, int(total), left * seconds / steps if is_known and left and seconds and steps else None)
