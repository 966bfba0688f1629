"""Read what training reported: one series per name and rank, thinned to what a chart can show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from common.db import sql
from common.errors import InvalidInput, Problem
from jobs.core.headlines import HEADLINES
from jobs.models import Job

from . import rollups
from .rollups import Window

MAX_POINTS = 500
MAX_NAMES = 8  # series per page
MAX_RANKS = 16  # lines per series


@dataclass(frozen=True)
class Series:
    """One series of one rank. Points are (time, step or None, value or None if it is not finite), oldest first."""

    name: str
    rank: int
    points: list[tuple[datetime, int | None, float | None]] = field(default_factory=list)


@dataclass(frozen=True)
class Latest:
    """The newest value of a job's first rank in one series."""

    name: str
    value: float


_LATEST = sql.load("jobs/sql/latest_values.sql")


def latest(jobs: Sequence[tuple[int, int]]) -> dict[int, Latest]:
    """Return the newest value of what each job, given with its attempt, reports first of `HEADLINES`."""
    if not jobs:
        return {}
    ids, attempts = zip(*jobs, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_LATEST, {"jobs": list(ids), "attempts": list(attempts), "names": list(HEADLINES)})
        return {job: Latest(name, value) for job, name, value in cursor.fetchall() if value is not None}


MAX_CHUNKS = 250  # chunks per series read for a chart: its cost must not grow with the length of the training
MOST_POINTS = 100_000  # per answer with any number of series: some 3 MB
MOST_SERIES = 20_000
_THINNED = sql.load("jobs/sql/thinned_points.sql")
_COUNTED = sql.load("jobs/sql/count_series.sql")
_NAMES = sql.load("jobs/sql/series_names.sql")
_RANKS = sql.load("jobs/sql/charted_ranks.sql")
_SPREAD_WITHIN = sql.load("jobs/sql/spread_points.sql", within=" AND id >= %(low)s AND id <= %(high)s")
_SPREAD_OVER_ALL = sql.load("jobs/sql/spread_points.sql", within="")
_BEGAN = sql.load("jobs/sql/series_began.sql")


def series(
    *, job: Job, names: Iterable[str] | None = None, limit: int = MAX_POINTS, attempt: int | None = None
) -> list[Series]:
    """Return the series of one attempt (default: the newest), all or those named.

    Two attempts in one line would go back in time. At most `limit` points per series, and fewer the more series there
    are. Raises InvalidInput if there are too many.
    """
    wanted = list(names) if names is not None else []
    which = job.attempt if attempt is None else attempt
    asked: dict[str, Any] = {"job": job.pk, "attempt": which, "all": names is None, "names": wanted}
    with connection.cursor() as cursor:
        cursor.execute(_COUNTED, {**asked, "limit": MOST_SERIES + 1})
        ((count,),) = cursor.fetchall()
        if count > MOST_SERIES:
            message = f"the job has more than the {MOST_SERIES:,} series of one answer; ask for some names, such as ?name=loss"
            raise InvalidInput(Problem("name", None, message))
        points = max(1, min(limit, MOST_POINTS // max(1, count)))
        cursor.execute(_THINNED, {**asked, "chunks": min(MAX_CHUNKS, points), "points": points})
        return _grouped(cursor.fetchall())


def names(*, job: Job, attempt: int) -> list[str]:
    """Return the names that the attempt reported, sorted."""
    with connection.cursor() as cursor:
        cursor.execute(_NAMES, {"job": job.pk, "attempt": attempt})
        return [name for (name,) in cursor.fetchall()]


def began(*, job: Job, attempt: int, names: Sequence[str]) -> float:
    """Return when the first of these series began, in seconds since the epoch; 0 if none has."""
    with connection.cursor() as cursor:
        cursor.execute(_BEGAN, {"names": list(names), "job": job.pk, "attempt": attempt})
        ((at,),) = cursor.fetchall()
    return float(at or 0.0)


def some_series(
    *, job: Job, attempt: int, names: Sequence[str], first: Sequence[int] = (), window: Window | None = None
) -> list[Series]:
    """Return a bounded number of lines for a page: at most MAX_NAMES names of MAX_RANKS ranks each.

    More lines have fewer points each. The ranks in `first` are preferred; the remaining lines go to ranks spread evenly
    over those that reported.
    """
    shown, preferred = list(names)[:MAX_NAMES], list(dict.fromkeys(first))[:MAX_RANKS]
    by_name: dict[str, dict[int, None]] = {}
    with connection.cursor() as cursor:
        asked: dict[str, Any] = {"job": job.pk, "attempt": attempt, "names": shown, "first": preferred}
        cursor.execute(_RANKS, {**asked, "spread": MAX_RANKS - len(preferred), "most": MAX_RANKS})
        for name, rank in cursor.fetchall():
            found = by_name.setdefault(name, {})
            if len(found) < MAX_RANKS:
                found.setdefault(rank)
    pairs = [(name, rank) for name, ranks in by_name.items() for rank in ranks]
    points = max(120, min(MAX_POINTS, 16 * MAX_POINTS // max(1, len(pairs))))
    return lines(job=job, attempt=attempt, pairs=pairs, points=points, window=window)


def lines(
    *, job: Job, attempt: int, pairs: Sequence[tuple[str, int]], points: int, window: Window | None = None
) -> list[Series]:  # fmt: skip
    """Return the series of these (name, rank) with about `points` points each; of `window` only, if it is given."""
    names = list(dict.fromkeys(name for name, _ in pairs))
    low, high = (window and rollups.chunks(job=job, attempt=attempt, names=names, window=window)) or (0, 2**63 - 1)
    asked: dict[str, Any] = {
        "job": job.pk, "attempt": attempt, "chunks": max(1, points // 2), "points": points, "low": low, "high": high - 1,
        "begins": window.begins if window else -math.inf, "ends": window.ends if window else math.inf,
        "names": [name for name, _ in pairs], "ranks": [rank for _, rank in pairs],
    }  # fmt: skip
    with connection.cursor() as cursor:
        if window:
            cursor.execute(_SPREAD_WITHIN, asked)
        else:
            cursor.execute(_SPREAD_OVER_ALL, asked)
        return _grouped(cursor.fetchall())


def _grouped(rows: Iterable[tuple[Any, ...]]) -> list[Series]:
    found: dict[tuple[str, int], Series] = {}
    for name, rank, at, step, value in rows:
        found.setdefault((name, rank), Series(name, rank)).points.append((at, step, value))
    return list(found.values())
