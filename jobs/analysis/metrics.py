"""Read what training reported: one series per name and rank, thinned to what a chart can show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from common.errors import InvalidInput, Problem
from jobs.models import Job

from . import rollups
from .rollups import Window

MAX_POINTS = 500
MAX_NAMES = 8  # series per page
MAX_RANKS = 16  # lines per series


@dataclass(frozen=True)
class Series:
    """One series of one rank. Points are (time, step or None, value), oldest first."""

    name: str
    rank: int
    points: list[tuple[datetime, int | None, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Latest:
    """The newest value of a job's first rank in one series."""

    name: str
    value: float


# What a list shows of a job, the first of these that it reports.
HEADLINES = ("loss", "train_loss", "train/loss", "loss/train", "val_loss", "reward", "accuracy")
_LATEST = """
    SELECT DISTINCT ON (j.id) j.id, c.name, c.values[cardinality(c.values)]
    FROM unnest(%s::bigint[], %s::int[]) AS j(id, attempt)
    CROSS JOIN unnest(%s::text[]) WITH ORDINALITY AS n(name, place)
    CROSS JOIN LATERAL (
        SELECT name, values FROM jobs_metricchunk
        WHERE job_id = j.id AND attempt = j.attempt AND name = n.name AND rank = 0 ORDER BY id DESC LIMIT 1
    ) c ORDER BY j.id, n.place
"""


def latest(jobs: Sequence[tuple[int, int]]) -> dict[int, Latest]:
    """Return the newest value of what each job, given with its attempt, reports first of `HEADLINES`."""
    if not jobs:
        return {}
    ids, attempts = zip(*jobs, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_LATEST, [list(ids), list(attempts), list(HEADLINES)])
        return {job: Latest(name, value) for job, name, value in cursor.fetchall() if value is not None}


MAX_CHUNKS = 250  # chunks per series read for a chart: its cost must not grow with the length of the training
MOST_POINTS = 100_000  # per answer with any number of series: some 3 MB
MOST_SERIES = 20_000

# Of long series every k-th chunk, then every k-th point, and always the last of each, so that a chart ends at the
# current state.
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

_COUNTED = """
    SELECT count(*) FROM (
        SELECT DISTINCT name, rank FROM jobs_metricchunk WHERE job_id = %s AND attempt = %s AND (%s OR name = ANY(%s)) LIMIT %s
    ) pairs
"""

# One step into the index (job, attempt, name, rank, id) per name.
_NAMES = """
    WITH RECURSIVE found(name) AS (
        (SELECT name FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s ORDER BY name LIMIT 1)
        UNION ALL
        SELECT (SELECT c.name FROM jobs_metricchunk c
                WHERE c.job_id = %(job)s AND c.attempt = %(attempt)s AND c.name > found.name ORDER BY c.name LIMIT 1)
        FROM found WHERE found.name IS NOT NULL
    )
    SELECT name FROM found WHERE name IS NOT NULL
"""

# For each name: the preferred ranks that reported it, then ranks spread evenly from its lowest to its highest, then its
# lowest ones, until there are enough. Each is one step into the index, so 1,024 ranks cost no more than 64.
_RANKS = """
    WITH RECURSIVE names AS (
        SELECT n.name, low.rank AS low, high.rank AS high
        FROM unnest(%(names)s::text[]) AS n(name)
        CROSS JOIN LATERAL (
            SELECT rank FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
            ORDER BY rank LIMIT 1
        ) low CROSS JOIN LATERAL (
            SELECT rank FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
            ORDER BY rank DESC LIMIT 1
        ) high
    ), lowest(name, rank, place) AS (
        SELECT name, low, 0 FROM names
        UNION ALL
        SELECT name, (SELECT c.rank FROM jobs_metricchunk c
                      WHERE c.job_id = %(job)s AND c.attempt = %(attempt)s AND c.name = lowest.name
                          AND c.rank > lowest.rank ORDER BY c.rank LIMIT 1), place + 1
        FROM lowest WHERE rank IS NOT NULL AND place + 1 < %(most)s
    ), found(name, rank, kind, place) AS (
        SELECT n.name, w.rank, 0, w.place FROM names n
        CROSS JOIN unnest(%(first)s::int[]) WITH ORDINALITY AS w(rank, place)
        CROSS JOIN LATERAL (
            SELECT FROM jobs_metricchunk c
            WHERE c.job_id = %(job)s AND c.attempt = %(attempt)s AND c.name = n.name AND c.rank = w.rank LIMIT 1
        ) reported
        UNION ALL
        SELECT n.name, c.rank, 1, t.place FROM names n
        CROSS JOIN generate_series(0, %(spread)s - 1) AS t(place)
        CROSS JOIN LATERAL (
            SELECT rank FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
                AND rank >= n.low + (n.high - n.low) * t.place / GREATEST(1, %(spread)s - 1) ORDER BY rank LIMIT 1
        ) c
        UNION ALL
        SELECT name, rank, 2, place FROM lowest WHERE rank IS NOT NULL
    )
    SELECT name, rank FROM found ORDER BY name, kind, place
"""

# Of a short series every chunk; of a long one chunks spread evenly over the ids between its first and its last, each
# one step into the index. Then every k-th point.
_SPREAD = """
    WITH ends AS (
        SELECT p.name, p.rank, low.id AS low, high.id AS high, few.total > %(chunks)s AS is_long
        FROM unnest(%(names)s::text[], %(ranks)s::int[]) AS p(name, rank)
        CROSS JOIN LATERAL (
            SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
                AND name = p.name AND rank = p.rank{within} ORDER BY id LIMIT 1
        ) low CROSS JOIN LATERAL (
            SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
                AND name = p.name AND rank = p.rank{within} ORDER BY id DESC LIMIT 1
        ) high CROSS JOIN LATERAL (
            SELECT count(*) AS total FROM (
                SELECT FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
                    AND name = p.name AND rank = p.rank{within} LIMIT %(chunks)s + 1
            ) part
        ) few
    ), chosen AS (
        SELECT c.id FROM ends e CROSS JOIN LATERAL (
            SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s
                AND name = e.name AND rank = e.rank{within} ORDER BY id LIMIT %(chunks)s
        ) c WHERE NOT e.is_long
        UNION
        SELECT c.id FROM ends e CROSS JOIN generate_series(0, %(chunks)s - 1) AS t(place) CROSS JOIN LATERAL (
            SELECT id FROM jobs_metricchunk WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = e.name
                AND rank = e.rank AND id >= e.low + (e.high - e.low) * t.place / GREATEST(1, %(chunks)s - 1)
            ORDER BY id LIMIT 1
        ) c WHERE e.is_long
    ), points AS (
        SELECT c.name, c.rank, p.at, p.step, p.value,
               row_number() OVER (PARTITION BY c.name, c.rank ORDER BY p.at DESC, c.id DESC) AS back,
               count(*) OVER (PARTITION BY c.name, c.rank) AS total
        FROM jobs_metricchunk c, unnest(c.times, c.steps, c.values) AS p(at, step, value)
        WHERE c.id = ANY(ARRAY(SELECT id FROM chosen)) AND p.at >= %(begins)s AND p.at <= %(ends)s
    )
    SELECT name, rank, to_timestamp(at), step, value FROM points
    WHERE back = 1 OR back %% GREATEST(1, CEIL(total / %(points)s::numeric)::bigint) = 0
    ORDER BY name, rank, at, back DESC
"""
# Without a window the condition is left out: it tempts Postgres to walk through the ids of all series.
_SPREAD_WITHIN = _SPREAD.replace("{within}", " AND id >= %(low)s AND id <= %(high)s")
_SPREAD_OVER_ALL = _SPREAD.replace("{within}", "")


def series(
    *, job: Job, names: Iterable[str] | None = None, limit: int = MAX_POINTS, attempt: int | None = None
) -> list[Series]:
    """Return the series of one attempt (default: the newest), all or those named.

    Two attempts in one line would go back in time. At most `limit` points per series, and fewer the more series there
    are. Raises InvalidInput if there are too many.
    """
    wanted = list(names) if names is not None else []
    which = job.attempt if attempt is None else attempt
    asked: list[Any] = [job.pk, which, names is None, wanted]
    with connection.cursor() as cursor:
        cursor.execute(_COUNTED, [*asked, MOST_SERIES + 1])
        ((count,),) = cursor.fetchall()
        if count > MOST_SERIES:
            said = f"the job has more than the {MOST_SERIES:,} series of one answer; ask for some names, such as ?name=loss"
            raise InvalidInput(Problem("name", None, said))
        points = max(1, min(limit, MOST_POINTS // max(1, count)))
        cursor.execute(_THINNED, [*asked, min(MAX_CHUNKS, points), points])
        return _grouped(cursor.fetchall())


def names(*, job: Job, attempt: int) -> list[str]:
    """Return the names that the attempt reported, sorted."""
    with connection.cursor() as cursor:
        cursor.execute(_NAMES, {"job": job.pk, "attempt": attempt})
        return [name for (name,) in cursor.fetchall()]


def began(*, job: Job, attempt: int, names: Sequence[str]) -> float:
    """Return when the first of these series began, in seconds since the epoch; 0 if none has."""
    with connection.cursor() as cursor:
        cursor.execute(_BEGAN, [list(names), job.pk, attempt])
        ((at,),) = cursor.fetchall()
    return float(at or 0.0)


# One step into the index per name: the first chunk of its lowest rank.
_BEGAN = """
    SELECT min(first.at) FROM unnest(%s::text[]) AS n(name) CROSS JOIN LATERAL (
        SELECT times[1] AS at FROM jobs_metricchunk WHERE job_id = %s AND attempt = %s AND name = n.name ORDER BY rank, id LIMIT 1
    ) first
"""


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
