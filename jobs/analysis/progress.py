"""How far a job is, where it reports its number of steps: `muster.report(step=120, total_steps=5000, loss=0.4)`.

`total_steps` is a series like any other, of which no chart is drawn; the steps of its values say how fast the job is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection

from common.text import format_duration
from jobs.core.lifecycle import Phase
from jobs.models import Job

from . import metrics

SERIES = "total_steps"
RECENT_CHUNKS = 30  # of rank 0, about a second each: what the speed is taken from
# Asked for are jobs with their attempts, each with the series to look at.
_RECENT = """
    SELECT j.id, (array_agg(c.last_step ORDER BY c.id DESC))[1], (array_agg(c.total ORDER BY c.id DESC))[1],
           (array_agg(c.last_at ORDER BY c.id DESC))[1] - (array_agg(c.first_at ORDER BY c.id))[1],
           (array_agg(c.last_step ORDER BY c.id DESC))[1] - (array_agg(c.first_step ORDER BY c.id))[1], max(j.furthest)
    FROM (
        SELECT a.id, a.attempt, a.name, r.step AS furthest
        FROM unnest(%s::bigint[], %s::int[], %s::text[]) AS a(id, attempt, name)
        LEFT JOIN jobs_rank r ON r.job_id = a.id AND r.attempt = a.attempt AND r.rank = 0
    ) j CROSS JOIN LATERAL (
        SELECT id, times[1] AS first_at, steps[1] AS first_step, times[cardinality(times)] AS last_at,
               steps[cardinality(steps)] AS last_step, values[cardinality(values)] AS total
        FROM jobs_metricchunk WHERE job_id = j.id AND attempt = j.attempt AND name = j.name AND rank = 0
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
    """Return the progress of those jobs' newest attempts that report it, by the job's id.

    One query for all; two more where jobs tell their total only now and then: their speed is taken from another series.
    """
    asked = {job.pk: job for job in jobs if job.attempt}
    told = {pk: rest for pk, *rest in _recent([(job, SERIES) for job in asked.values()])}
    behind = {pk for pk, (step, *_, furthest) in told.items() if furthest is not None and furthest > (step or 0)}
    stepping = _stepping([asked[pk] for pk in behind])
    speeds = {pk: (seconds, steps) for pk, _, _, seconds, steps, _ in _recent(stepping)}
    found = {}
    for pk, (step, total, seconds, steps, furthest) in told.items():
        if pk in behind:
            step, (seconds, steps) = furthest, speeds.get(pk, (None, None))
        one = _read(step, total, seconds, steps)
        if one is not None:
            found[pk] = one if asked[pk].phase == Phase.RUNNING else replace(one, seconds_left=None)
    return found


def _recent(asked: Sequence[tuple[Job, str]]) -> list[Any]:
    if not asked:
        return []
    ids, attempts, names = zip(*((job.pk, job.attempt, name) for job, name in asked), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_RECENT, [list(ids), list(attempts), list(names), RECENT_CHUNKS])
        return list(cursor.fetchall())


def _stepping(jobs: Sequence[Job]) -> list[tuple[Job, str]]:
    """Return for each job the one of `HEADLINES` of which rank 0 reported a step last, if there is one."""
    if not jobs:
        return []
    known = {job.pk: job for job in jobs}
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [list(known), [job.attempt for job in jobs], list(metrics.HEADLINES)])
        return [(known[pk], name) for pk, name in cursor.fetchall()]


_NEWEST = """
    SELECT DISTINCT ON (j.id) j.id, n.name FROM unnest(%s::bigint[], %s::int[]) AS j(id, attempt)
    CROSS JOIN unnest(%s::text[]) AS n(name) CROSS JOIN LATERAL (
        SELECT id, steps FROM jobs_metricchunk WHERE job_id = j.id AND attempt = j.attempt AND name = n.name AND rank = 0
        ORDER BY id DESC LIMIT 1
    ) c WHERE c.steps[cardinality(c.steps)] IS NOT NULL ORDER BY j.id, c.id DESC
"""


def _read(step: int | None, total: float | None, seconds: float | None, steps: int | None) -> Progress | None:
    if step is None or total is None or not 1 <= total < 2**53:
        return None
    left = max(0, int(total) - step)
    is_known = bool(seconds and steps and seconds > 0 and steps > 0)
    return Progress(step, int(total), left * seconds / steps if is_known and left and seconds and steps else None)
