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
from common.db import sql
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
# Of tables without statistics Postgres expects a handful of rows, and compared each of millions of points with each bucket.
_NO_LOOPS = "SET LOCAL enable_nestloop = off"
_MARK = sql.load("jobs/sql/mark_rollups.sql")
_DUE = sql.load("jobs/sql/due_rollups.sql")
_ROLL = sql.load("jobs/sql/compute_rollups.sql")
_WIDEN = sql.load("jobs/sql/widen_rollups.sql")

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


def _compute(now: datetime) -> tuple[int, bool]:
    """Compute buckets that are over and due, oldest first; return how many, and whether some are left."""
    with connection.cursor() as cursor:
        over = (now - GRACE).timestamp() - WIDTHS[0]
        cursor.execute(_DUE, {"over": over, "again": now - AGAIN, "limit": MOST_BUCKETS})
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


# -- reading

MOST_ROWS = 1000  # per series
MOST_SEARCHED = 4000  # buckets per series
LOOKED_AT = 12  # buckets
RECENT_SECONDS = 120  # what is not rolled up yet
_EXTENT = sql.load("jobs/sql/rollup_extent.sql")
_SPREAD = sql.load("jobs/sql/rollup_spread.sql")
_WORST = sql.load("jobs/sql/worst_ranks.sql")
_AT_STEPS = sql.load("jobs/sql/rollups_at_steps.sql")
_CHUNKS = sql.load("jobs/sql/chunks_of_window.sql")


@dataclass(frozen=True)
class Window:
    """A stretch of time, in seconds since the epoch."""

    begins: float
    ends: float


@dataclass(frozen=True)
class Bucket:
    """The spread of a series over its ranks within some time. `at`: its middle, in seconds since the epoch.

    Its numbers are None where no rank reported a finite value.
    """

    at: float
    step: int | None
    low: float | None
    p5: float | None
    median: float | None
    p95: float | None
    high: float | None


def extent(*, job: Job, attempt: int, names: Sequence[str]) -> Window | None:
    """Return from when to when there are roll-ups of these series; None if there are none yet."""
    with connection.cursor() as cursor:
        cursor.execute(_EXTENT, {"names": list(names), "job": job.pk, "attempt": attempt, "width": WIDTHS[0]})
        ((begins, ends),) = cursor.fetchall()
    return None if begins is None else Window(float(begins), float(ends + WIDTHS[0]))


def _width(window: Window, most: int) -> int:
    """Return the narrowest width of which at most `most` buckets lie within the window; else the widest there is."""
    return next((one for one in WIDTHS if (window.ends - window.begins) / one <= most), WIDTHS[-1])


def spread(
    *, job: Job, attempt: int, names: Sequence[str], window: Window, points: int
) -> dict[str, list[Bucket]]:  # fmt: skip
    """Return the spread of these series over their ranks within `window`, about `points` buckets each, oldest first.

    A series without roll-ups is left out.
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


def worst(*, job: Job, attempt: int, names: Sequence[str], window: Window) -> dict[str, list[int]]:
    """Return the ranks that were most often among the worst in the last minutes of `window`, by series, the worst first."""
    width = _width(window, MOST_ROWS)
    tallies: dict[str, Counter[int]] = {}
    asked: dict[str, Any] = {
        "names": list(names), "job": job.pk, "attempt": attempt, "width": width, "ends": math.ceil(window.ends),
        "limit": LOOKED_AT,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_WORST, asked)
        for name, ranks in cursor.fetchall():
            tally = tallies.setdefault(name, Counter())
            for place, rank in enumerate(ranks):
                tally[rank] += WORST - place
    return {name: [rank for rank, _ in tally.most_common(WORST)] for name, tally in tallies.items()}


def at_steps(*, job: Job, attempt: int, names: Sequence[str], low: int, high: int) -> Window | None:
    """Return when the steps from `low` to `high` were reported; None if there are no roll-ups.

    A bucket has the furthest of its steps: `low` lies after the last bucket below it, `high` in the first that reaches it.
    """
    whole = extent(job=job, attempt=attempt, names=names)
    if whole is None:
        return None
    width = _width(whole, MOST_SEARCHED)
    asked: dict[str, Any] = {
        "names": list(names), "job": job.pk, "attempt": attempt, "width": width, "low": low, "high": high,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_AT_STEPS, asked)
        ((begins, ends),) = cursor.fetchall()
    return Window(
        whole.begins if begins is None else float(begins),
        whole.ends + RECENT_SECONDS if ends is None else float(ends + width),
    )


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
