"""The space that logs take, and their limits: per job, per team, and on a disk that is nearly full.

Ingest checks every batch, so sums are cached: what this process stores is added at once, what others store is seen
within seconds where a budget is half used, else within a minute. A budget may be exceeded by that much, no more.
"""

import os
import time
from dataclasses import dataclass, field

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection

from common.db import sql
from common.files import file_store
from common.text import format_bytes
from jobs.core.thinning import Level, level

FAR_SECONDS, NEAR_SECONDS = 60.0, 5.0
DISK_SECONDS = 2.0
MOST_REMEMBERED = 10_000

_OF_JOB = "SELECT COALESCE(sum(log_bytes), 0)::bigint FROM jobs_replica WHERE job_id = %(job)s"
_OF_TEAMS = sql.load("jobs/sql/log_bytes_by_team.sql")
_LIMITS = "SELECT job_bytes, team_bytes FROM jobs_logbudget WHERE team_id = %(team)s"


@dataclass(frozen=True)
class Budget:
    """One team's limits in bytes; 0 means no limit."""

    job_bytes: int
    team_bytes: int


@dataclass
class Count:
    used: int
    until: float  # on the monotonic clock


@dataclass(frozen=True)
class TextBudget:
    """How much of a job's text is kept, and if not all of it, how the note about that begins, and its rest."""

    level: Level = Level.FULL
    about: str = ""
    words: str = ""


@dataclass
class CachedUsage:
    """Sums as last read, each with the end of its validity on the monotonic clock."""

    jobs: dict[int, Count] = field(default_factory=dict)
    teams: dict[int, tuple[Count, Budget]] = field(default_factory=dict)
    everybody: tuple[dict[int, int], float] = ({}, 0.0)  # bytes of every team
    disk: tuple[int, int, float] = (0, 0, 0.0)  # free bytes, and the number below which it is nearly full

    def clear(self) -> None:
        self.jobs.clear()
        self.teams.clear()
        self.forget_disk()

    def forget_disk(self) -> None:
        """Look at the disk again, and at who fills it."""
        self.everybody, self.disk = ({}, 0.0), (0, 0, 0.0)


known = CachedUsage()


def room(*, job: int, team: int) -> TextBudget:
    """Return the tightest of the three limits."""
    of_team, budget = _team(team)
    of_job = _job(job, budget.job_bytes)
    return min(
        TextBudget(level(of_job, budget.job_bytes), _ABOUT_JOB, _OF_JOB_WORDS.format(format_bytes(of_job), format_bytes(budget.job_bytes))),
        TextBudget(level(of_team.used, budget.team_bytes), _ABOUT_TEAM,
             _OF_TEAM_WORDS.format(format_bytes(of_team.used), format_bytes(budget.team_bytes))),
        _on_disk(team),
        key=lambda one: one.level,
    )  # fmt: skip


_KEPT = (
    "The last lines of each minute and of each rank are kept while the last fifth of the budget lasts; the others are shown "
    "as gaps. "
)
_ABOUT_JOB = "Log lines are left out: this job's log "
_OF_JOB_WORDS = (
    "takes {} and may take {}. " + _KEPT + "Print less, write large output to files below $MUSTER_SHARED, or ask the "
    "server's operator for more (manage.py team_logs)."
)
_ABOUT_TEAM = "Log lines are left out: the logs of this team "
_OF_TEAM_WORDS = (
    "take {} together and may take {}. "
    + _KEPT
    + "Delete logs of finished jobs (muster delete-log, or the button beside a "
    "job's log), or ask the server's operator for more (manage.py team_logs)."
)
_ABOUT_DISK = "Log lines are left out: the server's disk for logs "
_DISK_WORDS = (
    "has {} left, and this team's logs take more than an equal share of it. Only the last lines of each rank are kept as "
    "long as there is room. Delete logs of finished jobs (muster delete-log), or ask the server's operator for space."
)


def note_stored(*, job: int, team: int, count: int) -> None:
    """Add bytes stored by this process."""
    if job in known.jobs:
        known.jobs[job].used += count
    if team in known.teams:
        known.teams[team][0].used += count


def by_team(team: int | None = None) -> dict[int, int]:
    """Return the bytes that logs take now, of one team or of all teams with logs."""
    with connection.cursor() as cursor:
        cursor.execute(_OF_TEAMS, {"team": team})
        return dict(cursor.fetchall())


def budget_of(team: int) -> Budget:
    """Return the installation's limits, or the team's own ones set by a platform administrator."""
    with connection.cursor() as cursor:
        cursor.execute(_LIMITS, {"team": team})
        job_bytes, team_bytes = cursor.fetchone() or (None, None)
    return Budget(
        settings.MUSTER_LOG_JOB_BYTES if job_bytes is None else job_bytes,
        settings.MUSTER_LOG_TEAM_BYTES if team_bytes is None else team_bytes,
    )


def forget() -> None:
    """Clear the caches, after logs were deleted or a budget was changed."""
    known.clear()


def _job(job: int, budget: int) -> int:
    counted = known.jobs.get(job)
    if counted is None or time.monotonic() > counted.until:
        with connection.cursor() as cursor:
            cursor.execute(_OF_JOB, {"job": job})
            (used,) = cursor.fetchone()
        if len(known.jobs) >= MOST_REMEMBERED:
            known.jobs.clear()
        counted = known.jobs[job] = Count(used, time.monotonic() + _holds(used, budget))
    return counted.used


def _team(team: int) -> tuple[Count, Budget]:
    counted = known.teams.get(team)
    if counted is None or time.monotonic() > counted[0].until:
        budget, used = budget_of(team), by_team(team).get(team, 0)
        counted = known.teams[team] = Count(used, time.monotonic() + _holds(used, budget.team_bytes)), budget
    return counted


def _holds(used: int, budget: int) -> float:
    return NEAR_SECONDS if budget and used > budget / 2 else FAR_SECONDS


def _on_disk(team: int) -> TextBudget:
    """Return the limit set by the disk.

    If it is nearly full, teams below their equal share keep everything: the rest is theirs.
    """
    free, floor = _left()
    if free >= floor:
        return TextBudget()
    used = _everybodys()
    if used.get(team, 0) < sum(used.values()) / max(1, len(used)):
        return TextBudget()
    return TextBudget(
        Level.ENDS if free >= floor / 2 else Level.NOTHING, _ABOUT_DISK, _DISK_WORDS.format(format_bytes(free))
    )


def _left() -> tuple[int, int]:
    """Return the free bytes on the disk for logs, and the number below which it is nearly full.

    A store that is not a folder is unlimited.
    """
    if time.monotonic() > known.disk[2]:
        known.disk = (*_look(), time.monotonic() + DISK_SECONDS)
    return known.disk[0], known.disk[1]


def _look() -> tuple[int, int]:
    folder = file_store.folder_of(default_storage)
    while folder and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if not folder:
        return 0, 0
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, min(settings.MUSTER_LOG_FREE_BYTES, found.f_blocks * found.f_frsize // 10)


def _everybodys() -> dict[int, int]:
    if time.monotonic() > known.everybody[1]:
        known.everybody = by_team(), time.monotonic() + NEAR_SECONDS
    return known.everybody[0]
