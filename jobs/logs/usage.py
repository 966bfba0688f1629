"""What logs take, against what they may take: of one job, of a team, and of a disk that is nearly full.

Ingest asks for every batch, so sums are remembered: what this process stores is added at once, what others store is
seen within seconds where a budget is half used, else within a minute. A budget may be passed by that much, no more.
"""

import os
import time
from dataclasses import dataclass

from django.conf import settings
from django.core.files.storage import storages
from django.db import connection

from common.text import format_bytes
from jobs.core.thinning import Level, level

FAR_SECONDS, NEAR_SECONDS = 60.0, 5.0
DISK_SECONDS = 2.0
MOST_REMEMBERED = 10_000

_OF_JOB = "SELECT COALESCE(sum(log_bytes), 0)::bigint FROM jobs_replica WHERE job_id = %(job)s"
# Finished jobs by their own column, which retention.py settles once a day; the others by what ingest wrote of them.
_OF_TEAMS = """
    SELECT team_id, sum(bytes)::bigint FROM (
        SELECT team_id, log_bytes AS bytes FROM jobs_job WHERE log_bytes > 0 AND (%(team)s::bigint IS NULL OR team_id = %(team)s)
        UNION ALL
        SELECT j.team_id, r.log_bytes FROM jobs_job j JOIN jobs_replica r ON r.job_id = j.id
        WHERE j.log_bytes IS NULL AND (%(team)s::bigint IS NULL OR j.team_id = %(team)s)
    ) parts
    GROUP BY team_id
"""
_LIMITS = "SELECT job_bytes, team_bytes FROM jobs_logbudget WHERE team_id = %(team)s"


@dataclass(frozen=True)
class Budget:
    """What one team may take; 0 is no limit."""

    job_bytes: int
    team_bytes: int


@dataclass
class Count:
    used: int
    until: float  # on the monotonic clock


@dataclass(frozen=True)
class Room:
    """How much of a job's text is kept, and where it is not all: how that note begins, and the rest of it."""

    level: Level = Level.FULL
    about: str = ""
    words: str = ""


_jobs: dict[int, Count] = {}
_teams: dict[int, tuple[Count, Budget]] = {}
_all: list[tuple[dict[int, int], float]] = []  # bytes of every team, and until when that holds
_disk: list[tuple[int, int, float]] = []


def room(*, job: int, team: int) -> Room:
    """The tightest of the three bounds."""
    of_team, budget = _team(team)
    of_job = _job(job, budget.job_bytes)
    return min(
        Room(level(of_job, budget.job_bytes), _ABOUT_JOB, _OF_JOB_WORDS.format(format_bytes(of_job), format_bytes(budget.job_bytes))),
        Room(level(of_team.used, budget.team_bytes), _ABOUT_TEAM,
             _OF_TEAM_WORDS.format(format_bytes(of_team.used), format_bytes(budget.team_bytes))),
        _on_disk(team),
        key=lambda one: one.level,
    )  # fmt: skip


_KEPT = (
    "The last lines of each minute and of each rank's end are kept while a last fifth of room lasts, the others are shown "
    "as gaps. "
)
_ABOUT_JOB = "Log lines are left out: this job's log "
_OF_JOB_WORDS = (
    "takes {} and may take {}. "
    + _KEPT
    + "Print less, write large output to files below $MUSTER_SHARED, or ask whoever "
    "runs this server for more (manage.py team_logs)."
)
_ABOUT_TEAM = "Log lines are left out: the logs of this team "
_OF_TEAM_WORDS = (
    "take {} together and may take {}. "
    + _KEPT
    + "Delete logs of finished jobs (muster delete-log, or the button beside a "
    "job's log), or ask whoever runs this server for more (manage.py team_logs)."
)
_ABOUT_DISK = "Log lines are left out: the server's disk for logs "
_DISK_WORDS = (
    "has {} left, and this team's logs take more than its equal share of it. Only the last lines of each rank are kept as "
    "long as there is room. Delete logs of finished jobs (muster delete-log), or ask whoever runs this server for space."
)


def note_stored(*, job: int, team: int, count: int) -> None:
    """So many bytes more, by this process."""
    if job in _jobs:
        _jobs[job].used += count
    if team in _teams:
        _teams[team][0].used += count


def by_team(team: int | None = None) -> dict[int, int]:
    """Bytes that logs take now, of one team or of all that have any."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_TEAMS, {"team": team})
        return dict(cursor.fetchall())


def budget_of(team: int) -> Budget:
    """The installation's, or the team's own where a platform administrator gave it one."""
    with connection.cursor() as cursor:
        cursor.execute(_LIMITS, {"team": team})
        job_bytes, team_bytes = cursor.fetchone() or (None, None)
    return Budget(
        settings.MUSTER_LOG_JOB_BYTES if job_bytes is None else job_bytes,
        settings.MUSTER_LOG_TEAM_BYTES if team_bytes is None else team_bytes,
    )


def forget() -> None:
    """After logs were deleted or a budget was changed: what is remembered here is wrong."""
    _jobs.clear()
    _teams.clear()
    _all.clear()
    _disk.clear()


def _job(job: int, budget: int) -> int:
    known = _jobs.get(job)
    if known is None or time.monotonic() > known.until:
        with connection.cursor() as cursor:
            cursor.execute(_OF_JOB, {"job": job})
            (used,) = cursor.fetchone()
        if len(_jobs) >= MOST_REMEMBERED:
            _jobs.clear()
        known = _jobs[job] = Count(used, time.monotonic() + _holds(used, budget))
    return known.used


def _team(team: int) -> tuple[Count, Budget]:
    known = _teams.get(team)
    if known is None or time.monotonic() > known[0].until:
        budget, used = budget_of(team), by_team(team).get(team, 0)
        known = _teams[team] = Count(used, time.monotonic() + _holds(used, budget.team_bytes)), budget
    return known


def _holds(used: int, budget: int) -> float:
    return NEAR_SECONDS if budget and used > budget / 2 else FAR_SECONDS


def _on_disk(team: int) -> Room:
    """Where the disk is nearly full, teams below their equal share go on as ever: what is left is for them."""
    free, floor = _left()
    if free >= floor:
        return Room()
    used = _everybodys()
    if used.get(team, 0) < sum(used.values()) / max(1, len(used)):
        return Room()
    return Room(Level.ENDS if free >= floor / 2 else Level.NOTHING, _ABOUT_DISK, _DISK_WORDS.format(format_bytes(free)))


def _left() -> tuple[int, int]:
    """Bytes that are free where logs lie, and below how many it is nearly full. A store that is no folder has no end."""
    if not _disk or time.monotonic() > _disk[0][2]:
        _disk[:] = [(*_look(), time.monotonic() + DISK_SECONDS)]
    return _disk[0][0], _disk[0][1]


def _look() -> tuple[int, int]:
    folder = getattr(storages["logs"], "location", "")
    while folder and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if not folder:
        return 0, 0
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, min(settings.MUSTER_LOG_FREE_BYTES, found.f_blocks * found.f_frsize // 10)


def _everybodys() -> dict[int, int]:
    if not _all or time.monotonic() > _all[0][1]:
        _all[:] = [(by_team(), time.monotonic() + NEAR_SECONDS)]
    return _all[0][0]
