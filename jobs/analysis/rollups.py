"""Sum up what all ranks report: per series and bucket of time the spread over the ranks, and the three worst of them.

A chart of 10,000 ranks cannot read what each of them sent. So a background task reads new chunks once, in the order of
their ids, marks the buckets that they touch, and computes a bucket from its chunks when it is over. Chunks that come
later mark their bucket again. Computing a bucket twice gives the same row, and a task that is killed leaves its marks.

Buckets of 10 s are summed up into eight times longer ones, so that a chart of a month reads no more rows than one of an
hour. `low` and `high` of a longer bucket are exact; its p5, median and p95 are means of those of its parts, weighted by
their ranks.
"""

import logging
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from common import faultpoints
from jobs.models import Job, RollupPosition

log = logging.getLogger(__name__)
WIDTHS = (10, 80, 640, 5120)  # seconds
WORST = 3
# An agent sends once a second, and a disconnected one within a few: a bucket is over this long after its end.
GRACE = timedelta(seconds=15)
AGAIN = timedelta(minutes=1)  # least time between two computations of one bucket: late data may trickle in
MOST_CHUNKS = 200_000  # read at once
MOST_BUCKETS = 2_000  # computed at once
# Ingest moves what a wrong clock puts further before the job's submission than an hour to that hour: all values of a node
# would be in one bucket, whose chunks are all there are. They are in no roll-up.
EARLIEST_SECONDS = 3590
SETTLING_LOOKS, SETTLING_SECONDS = 20, 0.1  # for transactions that are under way
TURN_SECONDS = 8.0  # of one task; what is left waits for the next
# Beyond these, sums and squares would leave the range of a double, and Postgres refuses that: a smaller value counts as 0,
# a larger one like an infinite one.
LEAST, MOST = 1e-100, 1e100

# In which direction a series is bad, by words of its name; of all others both.
_BAD_LOW = re.compile(
    r"(?i)(?:^|[_/ .-])(?:acc|accuracy|auc|f1|bleu|score|reward|return|mfu|throughput|gpu|speed|per_sec(?:ond)?)(?:\Z|[_/ .@-])|/s\Z"
)
_BAD_HIGH = re.compile(
    r"(?i)(?:^|[_/ .-])(?:\w*loss|err|error|ppl|perplexity|nll|mse|mae|rmse|time|latency|seconds|ms|memory|grad_norm)(?:\Z|[_/ .@-])"
)


def bad_side(name: str) -> int:
    """Return 1 if high values of this series are bad, -1 if low ones are, 0 if either may be."""
    if _BAD_HIGH.search(name):
        return 1
    return -1 if _BAD_LOW.search(name) else 0


def roll_up(*, now: datetime) -> int:
    """Bring roll-ups up to date; return how many buckets were computed.

    May run concurrently, where the second one does nothing, and be killed at any point.
    """
    until, done = time.monotonic() + TURN_SECONDS, 0
    newest = _settled()
    while True:
        with faultpoints.atomic("rollups.turn"):
            RollupPosition.objects.get_or_create(pk=1)
            position = RollupPosition.objects.select_for_update(skip_locked=True).filter(pk=1).first()
            if position is None:
                return done
            _mark(position, newest)
            computed, is_cut = _compute(now)
        done += computed
        if not (is_cut or position.read < newest) or time.monotonic() > until:
            return done


def _settled() -> int:
    """Return an id up to which no chunk can still appear: ids are given before their transactions end.

    0 if older transactions do not end soon; the next turn tries again.
    """
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST)
        ((newest, horizon),) = cursor.fetchall()
        for _ in range(SETTLING_LOOKS):
            cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= %s", [horizon])
            if cursor.fetchall() == [(True,)]:
                return int(newest)
            time.sleep(SETTLING_SECONDS)
    log.warning(
        "metrics are not rolled up: a transaction of the database cluster does not end; the next turn tries again"
    )
    return 0


_NEWEST = """
    SELECT COALESCE((SELECT max(id) FROM jobs_metricchunk), 0), pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""


def _mark(position: RollupPosition, newest: int) -> None:
    """Mark the buckets of the next chunks."""
    if newest <= position.read:
        return
    with connection.cursor() as cursor:
        cursor.execute(_NEXT, [position.read, newest, MOST_CHUNKS])
        ((end,),) = cursor.fetchall()
        if end is not None:
            asked = {"read": position.read, "end": end, "width": WIDTHS[0], "earliest": EARLIEST_SECONDS}
            cursor.execute(_MARK, asked)
    position.read = newest if end is None else end
    position.save()


# Counted, not computed: there may be large gaps between ids.
_NEXT = "SELECT max(id) FROM (SELECT id FROM jobs_metricchunk WHERE id > %s AND id <= %s ORDER BY id LIMIT %s) AS next"


_MARK = """
    INSERT INTO jobs_metricrollup (job_id, attempt, name, width, begins, ranks, worst, chunks, is_due)
    SELECT job_id, attempt, name, %(width)s, bucket * %(width)s, 0, '{}', int8multirange(int8range(min(id), max(id), '[]')), true
    FROM (
        SELECT c.*, extract(epoch FROM j.created_at) - %(earliest)s AS earliest
        FROM jobs_metricchunk c JOIN jobs_job j ON j.id = c.job_id WHERE c.id > %(read)s AND c.id <= %(end)s
    ) m CROSS JOIN LATERAL (SELECT DISTINCT floor(at / %(width)s)::bigint FROM unnest(times) AS t(at) WHERE at > earliest) AS b(bucket)
    GROUP BY job_id, attempt, name, bucket ORDER BY job_id, attempt, name, bucket
    ON CONFLICT (job_id, attempt, name, width, begins) DO UPDATE SET is_due = true,
        chunks = jobs_metricrollup.chunks + excluded.chunks
"""


def _compute(now: datetime) -> tuple[int, bool]:
    """Compute buckets that are over and due, oldest first; return how many, and whether some are left."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE, [(now - GRACE).timestamp() - WIDTHS[0], now - AGAIN, MOST_BUCKETS])
        due = cursor.fetchall()
        chosen = _within(due)
        if not chosen:
            return 0, False
        ids, names = [pk for pk, *_ in chosen], sorted({name for _, name, _ in chosen})
        asked: dict[str, Any] = {"ids": ids, "names": names, "sides": [bad_side(name) for name in names]}
        cursor.execute(_NO_LOOPS)
        cursor.execute(_ROLL, {**asked, "width": WIDTHS[0], "worst": WORST, "now": now, "most": MOST, "least": LEAST})
        cursor.execute("SET LOCAL enable_nestloop = on")
        cursor.execute("UPDATE jobs_metricrollup SET is_due = false, rolled_at = %s WHERE id = ANY(%s)", [now, ids])
        for narrow, wide in zip(WIDTHS, WIDTHS[1:], strict=False):
            cursor.execute(_WIDEN, {"ids": ids, "narrow": narrow, "wide": wide, "worst": WORST, "now": now})
            ids = [pk for (pk,) in cursor.fetchall()]
        return len(chosen), len(chosen) < len(due) or len(due) == MOST_BUCKETS


_DUE = """
    SELECT id, name, chunks FROM jobs_metricrollup
    WHERE is_due AND begins <= %s AND (rolled_at IS NULL OR rolled_at <= %s) ORDER BY begins LIMIT %s
"""

Due = tuple[int, str, Iterable[Any]]


def _within(due: Iterable[Due]) -> list[Due]:
    """Return the first of these buckets, as many as can be computed from MOST_CHUNKS chunks, and at least one."""
    chosen: list[Due] = []
    read: list[tuple[int, int]] = []
    for one in due:
        read = _joined([*read, *((part.lower, part.upper) for part in one[2])])
        if chosen and sum(high - low for low, high in read) > MOST_CHUNKS:
            break
        chosen.append(one)
    return chosen


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return half-open ranges without overlaps."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


# Of tables without statistics Postgres expects a handful of rows, and compared each of millions of points with each bucket.
_NO_LOOPS = "SET LOCAL enable_nestloop = off"

# One value per rank and bucket, its mean, so that ranks which report more often do not weigh more. Infinite, undefined
# and absurd values are in no number, but a rank that reports one is the worst.
_ROLL = """
    WITH due AS (
        SELECT r.id, r.job_id, r.attempt, r.name, r.begins, n.side
        FROM jobs_metricrollup r JOIN unnest(%(names)s::text[], %(sides)s::int[]) AS n(name, side) USING (name)
        WHERE r.id = ANY(%(ids)s)
    ), needed AS (
        SELECT lower(one) AS low, upper(one) AS high
        FROM (SELECT range_agg(chunks) AS all_chunks FROM jobs_metricrollup WHERE id = ANY(%(ids)s)) r, unnest(all_chunks) AS one
    ), points AS (
        SELECT c.job_id, c.attempt, c.name, c.rank, floor(p.at / %(width)s)::bigint * %(width)s AS begins, p.step,
            CASE WHEN abs(p.value) >= %(least)s AND abs(p.value) <= %(most)s THEN p.value WHEN abs(p.value) < %(least)s THEN 0 END AS value
        FROM needed JOIN jobs_metricchunk c ON c.id >= needed.low AND c.id < needed.high
        JOIN (SELECT DISTINCT job_id, attempt, name FROM due) mine USING (job_id, attempt, name)
        CROSS JOIN LATERAL unnest(c.times, c.steps, c.values) AS p(at, step, value)
    ), means AS MATERIALIZED (
        SELECT d.id, d.side, p.rank, avg(p.value) AS mean, min(p.value) AS low, max(p.value) AS high, max(p.step) AS step,
            bool_and(p.step IS NOT NULL) AS has_step, bool_or(p.value IS NULL) AS is_odd
        FROM points p JOIN due d USING (job_id, attempt, name, begins) GROUP BY d.id, d.side, p.rank
    ), spread AS MATERIALIZED (
        SELECT id, count(mean) AS ranks, min(low) AS low, max(high) AS high, CASE WHEN bool_and(has_step) THEN max(step) END AS step,
            percentile_cont(ARRAY[0.05, 0.5, 0.95]) WITHIN GROUP (ORDER BY mean) AS at
        FROM means GROUP BY id
    ), far AS (
        SELECT m.id, m.rank, row_number() OVER (PARTITION BY m.id ORDER BY m.is_odd DESC, CASE m.side
            WHEN 0 THEN abs(m.mean - s.at[2]) ELSE m.side * (m.mean - s.at[2]) END DESC, m.rank) AS place
        FROM means m JOIN spread s USING (id)
        WHERE m.is_odd OR CASE m.side WHEN 0 THEN m.mean <> s.at[2] ELSE m.side * (m.mean - s.at[2]) > 0 END
    ), worst AS (
        SELECT id, array_agg(rank ORDER BY place) AS ranks FROM far WHERE place <= %(worst)s GROUP BY id
    )
    UPDATE jobs_metricrollup r SET ranks = s.ranks, step = s.step, low = s.low, p5 = s.at[1], median = s.at[2], p95 = s.at[3],
        high = s.high, worst = COALESCE(w.ranks, '{}'), rolled_at = %(now)s
    FROM spread s LEFT JOIN worst w USING (id) WHERE r.id = s.id
"""

# A longer bucket's worst ranks are those that most of its parts count among their worst.
_WIDEN = """
    WITH touched AS (
        SELECT DISTINCT job_id, attempt, name, begins / %(wide)s * %(wide)s AS start FROM jobs_metricrollup WHERE id = ANY(%(ids)s)
    ), parts AS (
        SELECT t.start, r.* FROM touched t JOIN jobs_metricrollup r ON r.job_id = t.job_id AND r.attempt = t.attempt
            AND r.name = t.name AND r.width = %(narrow)s AND r.begins >= t.start AND r.begins < t.start + %(wide)s
        WHERE r.rolled_at IS NOT NULL
    ), far AS (
        SELECT job_id, attempt, name, start, rank, row_number() OVER (
            PARTITION BY job_id, attempt, name, start ORDER BY count(*) DESC, min(place), rank) AS place
        FROM parts, unnest(worst) WITH ORDINALITY AS w(rank, place) GROUP BY job_id, attempt, name, start, rank
    ), worst AS (
        SELECT job_id, attempt, name, start, array_agg(rank ORDER BY place) AS worst_ranks FROM far WHERE place <= %(worst)s
        GROUP BY job_id, attempt, name, start
    )
    INSERT INTO jobs_metricrollup (job_id, attempt, name, width, begins, ranks, step, low, p5, median, p95, high, worst, chunks,
        is_due, rolled_at)
    SELECT p.job_id, p.attempt, p.name, %(wide)s, p.start, max(p.ranks), CASE WHEN bool_and(p.step IS NOT NULL) THEN max(p.step) END,
        min(p.low), sum(p.p5 * p.ranks) / NULLIF(sum(p.ranks), 0), sum(p.median * p.ranks) / NULLIF(sum(p.ranks), 0),
        sum(p.p95 * p.ranks) / NULLIF(sum(p.ranks), 0), max(p.high), COALESCE(w.worst_ranks, '{}'), '{}', false, %(now)s
    FROM parts p LEFT JOIN worst w USING (job_id, attempt, name, start)
    GROUP BY p.job_id, p.attempt, p.name, p.start, w.worst_ranks ORDER BY 1, 2, 3, 5
    ON CONFLICT (job_id, attempt, name, width, begins) DO UPDATE SET ranks = excluded.ranks, step = excluded.step,
        low = excluded.low, p5 = excluded.p5, median = excluded.median, p95 = excluded.p95, high = excluded.high,
        worst = excluded.worst, rolled_at = excluded.rolled_at
    RETURNING id
"""


# -- reading


@dataclass(frozen=True)
class Window:
    """A stretch of time, in seconds since the epoch."""

    begins: float
    ends: float


@dataclass(frozen=True)
class Bucket:
    """The spread of a series over its ranks within some time. `at`: its middle, in seconds since the epoch."""

    at: float
    step: int | None
    low: float
    p5: float
    median: float
    p95: float
    high: float


def extent(*, job: Job, attempt: int, names: Sequence[str]) -> Window | None:
    """Return from when to when there are roll-ups of these series; None if there are none yet."""
    with connection.cursor() as cursor:
        cursor.execute(_EXTENT, {"names": list(names), "job": job.pk, "attempt": attempt, "width": WIDTHS[0]})
        ((begins, ends),) = cursor.fetchall()
    return None if begins is None else Window(float(begins), float(ends + WIDTHS[0]))


# Two steps into the index per name.
_EXTENT = """
    SELECT min(first.begins), max(last.begins) FROM unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL (
        SELECT begins FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name AND width = %(width)s
            AND rolled_at IS NOT NULL ORDER BY begins LIMIT 1
    ) first CROSS JOIN LATERAL (
        SELECT begins FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name AND width = %(width)s
            AND rolled_at IS NOT NULL ORDER BY begins DESC LIMIT 1
    ) last
"""


def _width(window: Window, most: int) -> int:
    """Return the narrowest width of which at most `most` buckets lie within the window; else the widest there is."""
    return next((one for one in WIDTHS if (window.ends - window.begins) / one <= most), WIDTHS[-1])


def spread(
    *, job: Job, attempt: int, names: Sequence[str], window: Window, points: int
) -> dict[str, list[Bucket]]:  # fmt: skip
    """Return the spread of these series over their ranks within `window`, about `points` buckets each, oldest first.

    A series without roll-ups, or without one finite value, is left out.
    """
    width = _width(window, MOST_ROWS)
    joined = width * max(1, math.ceil((window.ends - window.begins) / width / points))
    asked: dict[str, Any] = {
        "job": job.pk, "attempt": attempt, "names": list(names), "width": width, "joined": joined,
        "begins": math.floor(window.begins / joined) * joined, "ends": math.ceil(window.ends),
    }  # fmt: skip
    found: dict[str, list[Bucket]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_SPREAD, asked)
        for name, begins, *numbers in cursor.fetchall():
            found.setdefault(name, []).append(Bucket(begins + joined / 2, *numbers))
    return found


MOST_ROWS = 1000  # per series
_SPREAD = """
    SELECT name, begins / %(joined)s * %(joined)s AS start, CASE WHEN bool_and(step IS NOT NULL) THEN max(step) END, min(low),
        sum(p5 * ranks) / sum(ranks), sum(median * ranks) / sum(ranks), sum(p95 * ranks) / sum(ranks), max(high)
    FROM jobs_metricrollup
    WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = ANY(%(names)s) AND width = %(width)s
        AND begins >= %(begins)s AND begins < %(ends)s AND ranks > 0
    GROUP BY name, start ORDER BY name, start
"""


def worst(*, job: Job, attempt: int, names: Sequence[str], window: Window) -> dict[str, list[int]]:
    """Return the ranks that were most often among the worst in the last minutes of `window`, by series, the worst first."""
    width = _width(window, MOST_ROWS)
    tallies: dict[str, Counter[int]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_WORST, [list(names), job.pk, attempt, width, math.ceil(window.ends), LOOKED_AT])
        for name, ranks in cursor.fetchall():
            tally = tallies.setdefault(name, Counter())
            for place, rank in enumerate(ranks):
                tally[rank] += WORST - place
    return {name: [rank for rank, _ in tally.most_common(WORST)] for name, tally in tallies.items()}


LOOKED_AT = 12  # buckets
_WORST = """
    SELECT n.name, r.worst FROM unnest(%s::text[]) AS n(name) CROSS JOIN LATERAL (
        SELECT worst FROM jobs_metricrollup WHERE job_id = %s AND attempt = %s AND name = n.name AND width = %s AND begins < %s
            AND rolled_at IS NOT NULL
        ORDER BY begins DESC LIMIT %s
    ) r
"""


def at_steps(*, job: Job, attempt: int, names: Sequence[str], low: int, high: int) -> Window | None:
    """Return when the steps from `low` to `high` were reported; None if there are no roll-ups.

    A bucket has the furthest of its steps: `low` lies after the last bucket below it, `high` in the first that reaches it.
    """
    whole = extent(job=job, attempt=attempt, names=names)
    if whole is None:
        return None
    width = _width(whole, MOST_SEARCHED)
    with connection.cursor() as cursor:
        cursor.execute(_AT_STEPS, [low, high, job.pk, attempt, list(names), width])
        ((begins, ends),) = cursor.fetchall()
    return Window(
        whole.begins if begins is None else float(begins),
        whole.ends + RECENT_SECONDS if ends is None else float(ends + width),
    )


MOST_SEARCHED = 4000  # buckets per series
RECENT_SECONDS = 120  # what is not rolled up yet
_AT_STEPS = """
    SELECT max(begins) FILTER (WHERE step < %s), min(begins) FILTER (WHERE step >= %s) FROM jobs_metricrollup
    WHERE job_id = %s AND attempt = %s AND name = ANY(%s) AND width = %s
"""


def chunks(*, job: Job, attempt: int, names: Sequence[str], window: Window) -> tuple[int, int] | None:
    """Return between which ids the chunks of that time lie, the higher one excluded; None if none has been read yet.

    Late chunks in the middle of a long window may lie beyond.
    """
    asked: dict[str, Any] = {
        "names": list(names), "job": job.pk, "attempt": attempt, "width": WIDTHS[0], "most": MOST_SEARCHED // 2,
        "begins": math.floor(window.begins) - WIDTHS[0], "ends": math.ceil(window.ends),
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_CHUNKS, asked)
        ((low, high),) = cursor.fetchall()
    return None if low is None or high is None else (low, high)


# Ids rise with time but for late chunks, so of a very long window the first and the last buckets tell.
_CHUNKS = """
    SELECT min(low), max(high) FROM unnest(%(names)s::text[]) AS n(name) CROSS JOIN LATERAL (
        SELECT min(lower(chunks)) AS low, max(upper(chunks)) AS high FROM (
            (SELECT chunks FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
                AND width = %(width)s AND begins >= %(begins)s AND begins < %(ends)s ORDER BY begins LIMIT %(most)s)
            UNION ALL
            (SELECT chunks FROM jobs_metricrollup WHERE job_id = %(job)s AND attempt = %(attempt)s AND name = n.name
                AND width = %(width)s AND begins >= %(begins)s AND begins < %(ends)s ORDER BY begins DESC LIMIT %(most)s)
        ) AS both_ends
    ) of_series
"""
