"""How far a job is, where it reports its number of steps: `muster.report(step=120, total_steps=5000, loss=0.4)`.

`total_steps` is a series like any other, of which no chart is drawn; the steps of its values say how fast the job is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection

from common.db import sql
from common.text import format_duration
from jobs.core.headlines import HEADLINES
from jobs.core.lifecycle import Phase
from jobs.models import Job

SERIES = "total_steps"
STUCK_SECONDS, STUCK_STEPS = 120.0, 10  # without a report: both of them, since some report every tenth step
RECENT_CHUNKS = 30  # of rank 0, about a second each: what the speed is taken from
_RECENT = sql.load("jobs/sql/recent_progress.sql")
_STEPPING = sql.load("jobs/sql/newest_stepping_series.sql")


@dataclass(frozen=True)
class Progress:
    """`seconds_left` is None where the job has reported too little for an estimate, or has reported its last step."""

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

    One query for all; two more where jobs report their total only now and then: their speed is taken from another series.
    """
    asked = {job.pk: job for job in jobs if job.attempt}
    reported = {pk: rest for pk, *rest in _recent([(job, SERIES) for job in asked.values()])}
    behind = {pk for pk, (step, *_, furthest, _) in reported.items() if furthest is not None and furthest > (step or 0)}
    stepping = _stepping([asked[pk] for pk in behind])
    speeds = {pk: (seconds, steps, still) for pk, _, _, seconds, steps, _, still in _recent(stepping)}
    found = {}
    for pk, (step, total, seconds, steps, furthest, still) in reported.items():
        if pk in behind:
            step, (seconds, steps, still) = furthest, speeds.get(pk, (None, None, 0.0))
        one = _read(step, total, seconds, steps=steps)
        if one is not None:
            moves = asked[pk].phase == Phase.RUNNING and not _is_stuck(still, seconds, steps)
            found[pk] = one if moves else replace(one, seconds_left=None)
    return found


def _is_stuck(still: float, seconds: float | None, steps: int | None) -> bool:
    """Return whether a job has reported nothing for far longer than its steps take: then no time left can be told."""
    each = seconds / steps if seconds and steps and steps > 0 else 0.0
    return still > max(STUCK_SECONDS, STUCK_STEPS * each)


def _recent(asked: Sequence[tuple[Job, str]]) -> list[Any]:
    if not asked:
        return []
    ids, attempts, names = zip(*((job.pk, job.attempt, name) for job, name in asked), strict=True)
    given: dict[str, Any] = {
        "jobs": list(ids),
        "attempts": list(attempts),
        "names": list(names),
        "chunks": RECENT_CHUNKS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_RECENT, given)
        return list(cursor.fetchall())


def _stepping(jobs: Sequence[Job]) -> list[tuple[Job, str]]:
    """Return for each job the one of `HEADLINES` of which rank 0 reported a step last, if there is one."""
    if not jobs:
        return []
    known = {job.pk: job for job in jobs}
    given: dict[str, Any] = {
        "jobs": list(known),
        "attempts": [job.attempt for job in jobs],
        "names": list(HEADLINES),
    }
    with connection.cursor() as cursor:
        cursor.execute(_STEPPING, given)
        return [(known[pk], name) for pk, name in cursor.fetchall()]


def _read(step: int | None, total: float | None, seconds: float | None, *, steps: int | None) -> Progress | None:
    if step is None or total is None or not 1 <= total < 2**53:
        return None
    left = max(0, int(total) - step)
    is_known = bool(seconds and steps and seconds > 0 and steps > 0)
    return Progress(step, int(total), left * seconds / steps if is_known and left and seconds and steps else None)
