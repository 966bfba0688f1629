"""Roll-ups of what all ranks report equal a plain computation, however chunks arrive and however often they are computed."""

import math
import random
from datetime import UTC, datetime, timedelta
from statistics import mean, median

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from jobs.analysis import rollups
from jobs.analysis.rollups import Window, bad_side
from jobs.models import Job, MetricChunk, MetricRollup, RollupPosition

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("files")]
LATER = timezone.now() + timedelta(days=1)
START = 1_763_700_000  # a multiple of the first three widths


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Postgres' own housekeeping may hold a transaction for a while."""
    monkeypatch.setattr(rollups, "SETTLING_LOOKS", 600)


def submitted_then(lab):
    job = lab.running()
    Job.objects.filter(pk=job.pk).update(created_at=datetime.fromtimestamp(START, UTC))
    return job


def chunk(job, rank, points, *, name="loss"):
    """`points`: (seconds after START, step, value)."""
    times, steps, values = zip(*points, strict=True)
    return MetricChunk.objects.create(
        job=job, attempt=1, rank=rank, name=name, times=[START + at for at in times], steps=list(steps), values=list(values)
    )  # fmt: skip


def rows(width=10, name="loss"):
    return {row.begins - START: row for row in MetricRollup.objects.filter(width=width, name=name).order_by("begins")}


def numbers(row):
    return row.ranks, row.step, row.low, row.p5, row.median, row.p95, row.high, row.worst


def at_percent(values, share):
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def test_a_bucket_equals_a_plain_computation(lab):
    job, dice = submitted_then(lab), random.Random(4)
    told: dict[int, dict[int, list[float]]] = {}
    for rank in range(37):
        points = [(second, second * 2, dice.gauss(rank / 10, 1)) for second in range(0, 95, 3)]
        for second, _, value in points:
            told.setdefault(second // 10 * 10, {}).setdefault(rank, []).append(value)
        cut = dice.randrange(1, len(points))
        chunk(job, rank, points[:cut])
        chunk(job, rank, points[cut:])
    assert rollups.roll_up(now=LATER) == 10
    found = rows()
    assert list(found) == list(told)
    for begins, ranks in told.items():
        means = {rank: mean(values) for rank, values in ranks.items()}
        middle = median(means.values())
        worst = sorted((rank for rank in means if means[rank] > middle), key=lambda rank: -means[rank])[:3]
        row = found[begins]
        every = [value for values in ranks.values() for value in values]
        assert (row.low, row.high, row.ranks, row.worst) == (min(every), max(every), 37, worst)
        assert [row.p5, row.median, row.p95] == pytest.approx(
            [at_percent(means.values(), share) for share in (0.05, 0.5, 0.95)]
        )
        assert row.step == 2 * max(second for second in range(begins, begins + 10) if second % 3 == 0 and second < 95)
    wide = rows(width=80)
    assert list(wide) == [0, 80]
    assert wide[0].low == min(found[begins].low for begins in range(0, 80, 10))
    assert wide[0].high == max(found[begins].high for begins in range(0, 80, 10))
    assert wide[0].median == pytest.approx(mean(found[begins].median for begins in range(0, 80, 10)))
    assert len(rows(width=640)) == len(rows(width=5120)) == 1


def test_computing_again_changes_nothing(lab):
    job = submitted_then(lab)
    for rank in range(4):
        chunk(job, rank, [(second, second, rank + second) for second in range(20)])
    rollups.roll_up(now=LATER)
    before = {(row.width, row.begins): numbers(row) for row in MetricRollup.objects.all()}
    assert rollups.roll_up(now=LATER) == 0
    RollupPosition.objects.update(read=0)  # as if the first turn had been lost after it read, or ran twice
    assert rollups.roll_up(now=LATER + timedelta(hours=1)) == 2
    assert {(row.width, row.begins): numbers(row) for row in MetricRollup.objects.all()} == before


def test_late_chunks_are_counted_and_at_most_once_a_minute(lab):
    job = submitted_then(lab)
    for rank in (0, 1, 2):
        chunk(job, rank, [(second, second, 1.0) for second in range(30)])
    rollups.roll_up(now=LATER)
    assert rows()[0].high == 1.0 and rows()[0].worst == []
    chunk(job, 3, [(4, 4, 9.0)])
    assert rollups.roll_up(now=LATER + timedelta(seconds=30)) == 0
    assert rollups.roll_up(now=LATER + timedelta(seconds=61)) == 1
    assert (rows()[0].high, rows()[0].ranks, rows()[0].worst, rows()[10].high) == (9.0, 4, [3], 1.0)
    assert rows(width=80)[0].high == rows(width=5120)[min(rows(width=5120))].high == 9.0


def test_a_bucket_waits_until_it_is_over(lab):
    job, now = lab.running(), timezone.now()
    begins = int(now.timestamp()) // 10 * 10
    MetricChunk.objects.create(job=job, attempt=1, rank=0, name="loss", times=[begins + 1], steps=[1], values=[1.0])
    assert rollups.roll_up(now=now) == 0
    assert MetricRollup.objects.get().is_due
    assert rollups.roll_up(now=now + rollups.GRACE + timedelta(seconds=10)) == 1


def test_a_chunk_that_is_committed_after_later_ones_is_not_missed(lab, monkeypatch):
    job = submitted_then(lab)
    monkeypatch.setattr(rollups, "SETTLING_LOOKS", 2)
    insert = "INSERT INTO jobs_metricchunk (job_id, attempt, rank, name, times, steps, values) VALUES (%s, 1, 7, 'loss', %s, %s, %s)"
    other = psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor})
    try:
        other.execute(insert, [job.pk, [START + 1.0], [1], [70.0]])
        chunk(job, 0, [(2, 2, 1.0)])  # has a higher id, and is there first
        assert rollups.roll_up(now=LATER) == 0
        other.commit()
    finally:
        other.close()
    monkeypatch.setattr(rollups, "SETTLING_LOOKS", 600)
    assert rollups.roll_up(now=LATER) == 1
    assert (rows()[0].ranks, rows()[0].high) == (2, 70.0)


@pytest.mark.parametrize("odd", [None, math.nan, math.inf, -math.inf, 1.7e308])
def test_a_rank_with_values_beyond_all_bounds_is_the_worst_and_in_no_number(lab, odd):
    job = submitted_then(lab)
    for rank in range(5):
        chunk(job, rank, [(1, 1, float(rank)), (2, 2, 5e-324)])
    chunk(job, 2, [(3, 3, odd)])
    chunk(job, 9, [(11, 4, odd)])
    assert rollups.roll_up(now=LATER) == 2
    assert rows()[0].worst[0] == 2
    assert (rows()[0].high, rows()[0].low, rows()[0].ranks) == (4.0, 0.0, 5)
    assert (rows()[10].ranks, rows()[10].median, rows()[10].worst) == (0, None, [9])
    (first, second) = rollups.spread(job=job, attempt=1, names=["loss"], window=Window(START, START + 20), points=50)[
        "loss"
    ]
    assert (first.high, second.step, second.high, second.median) == (4.0, 4, None, None)


def test_a_backlog_is_worked_off_in_parts(lab, monkeypatch):
    job = submitted_then(lab)
    monkeypatch.setattr(rollups, "MOST_CHUNKS", 7)
    monkeypatch.setattr(rollups, "MOST_BUCKETS", 5)
    for second in range(0, 400, 10):
        chunk(job, 0, [(second, second, float(second))])
    assert rollups.roll_up(now=LATER) == 40
    assert [row.median for row in rows().values()] == [float(second) for second in range(0, 400, 10)]


def test_a_months_training_is_read_in_few_rows(lab):
    job = submitted_then(lab)
    for hour in range(24 * 30):
        chunk(job, 0, [(3600 * hour, hour, float(hour))])
    rollups.roll_up(now=LATER)
    whole = rollups.extent(job=job, attempt=1, names=["loss"])
    assert whole == Window(START, START + 3600 * (24 * 30 - 1) + 10)
    found = rollups.spread(job=job, attempt=1, names=["loss", "nothing"], window=whole, points=100)
    assert 80 <= len(found["loss"]) <= 101 and list(found) == ["loss"]
    assert found["loss"][-1].high == 719 and found["loss"][0].low == 0
    near = rollups.at_steps(job=job, attempt=1, names=["loss"], low=100, high=110)
    assert (
        START + 3600 * 96 <= near.begins <= START + 3600 * 100 and START + 3600 * 110 <= near.ends < START + 3600 * 114
    )
    assert rollups.at_steps(job=job, attempt=1, names=["loss"], low=0, high=9999).begins == START
    low, high = rollups.chunks(job=job, attempt=1, names=["loss"], window=near)
    inside = MetricChunk.objects.filter(pk__gte=low, pk__lt=high).count()
    assert 11 <= inside <= 20


def test_a_zoom_within_one_bucket_finds_it(lab):
    job = submitted_then(lab)
    chunk(job, 0, [(second, 50 * second, 1.0) for second in range(60)])
    rollups.roll_up(now=LATER)
    near = rollups.at_steps(job=job, attempt=1, names=["loss"], low=1020, high=1030)
    assert near.begins <= START + 20 and START + 21 <= near.ends <= START + 60


def test_what_a_wrong_clock_moved_is_in_no_bucket(lab):
    job = lab.running()
    moved = job.created_at.timestamp() - 3600
    MetricChunk.objects.create(job=job, attempt=1, rank=0, name="loss", times=[moved], steps=[1], values=[1.0])
    assert rollups.roll_up(now=LATER) == 0 and not MetricRollup.objects.exists()


def test_the_worst_are_those_of_the_last_minutes(lab):
    job = submitted_then(lab)
    for rank in range(8):
        chunk(
            job,
            rank,
            [(second, second, 9.0 if rank == (1 if second < 300 else 6) else 1.0) for second in range(0, 600, 5)],
        )
    rollups.roll_up(now=LATER)
    of = {"job": job, "attempt": 1, "names": ["loss"]}
    assert rollups.worst(**of, window=Window(START, START + 600)) == {"loss": [6]}
    assert rollups.worst(**of, window=Window(START, START + 200)) == {"loss": [1]}


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("loss", 1), ("val_loss", 1), ("train/loss", 1), ("error", 1), ("step_time", 1), ("system/memory", 1), ("grad_norm", 1),
        ("accuracy", -1), ("val_acc", -1), ("reward", -1), ("tokens/s", -1), ("system/gpu", -1), ("samples_per_second", -1),
        ("lr", 0), ("epoch", 0), ("glossary", 0), ("temperature", 0), ("system/cpu", 0),
    ],
)  # fmt: skip
def test_the_bad_side_of_a_series_is_told_by_its_name(name, side):
    assert bad_side(name) == side
