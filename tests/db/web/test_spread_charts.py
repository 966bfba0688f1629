"""Charts of a job with many ranks draw all of them; charts zoom, are smoothed, have a log scale and show another job."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from jobs.analysis import rollups
from jobs.models import Job, MetricChunk
from jobs.web.charts import log_axis, smoothed
from jobs.web.detail import zoom_of
from jobs.web.metrics import Zoom

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("files")]
START = 1_763_700_000


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Postgres' own housekeeping may hold a transaction for a while."""
    monkeypatch.setattr(rollups, "SETTLING_LOOKS", 600)


def running(lab, *, ranks: int) -> Job:
    lab.queue.nominal = 2 * ranks
    lab.queue.save()
    job = lab.running(nodes=ranks // 8, nproc_per_node=8)
    Job.objects.filter(pk=job.pk).update(created_at=datetime.fromtimestamp(START, UTC))
    return job


def report(job, *, names=("loss",), seconds=200, bad: int | None = None, with_step=True) -> None:
    MetricChunk.objects.bulk_create(
        MetricChunk(
            job=job, attempt=1, rank=rank, name=name, times=[START + at for at in range(0, seconds, 5)],
            steps=[at if with_step else None for at in range(0, seconds, 5)],
            values=[(10.0 if rank == bad else 1.0 + rank / 1000) / (1 + at) for at in range(0, seconds, 5)],
        )
        for name in names for rank in range(job.world_size)
    )  # fmt: skip
    rollups.roll_up(now=timezone.now() + timedelta(days=1))


def chart(page: str, title: str = "loss") -> str:
    return next(box for box in page.split('<figure class="chart-box">')[1:] if f"<b>{title} " in box)


def lines(box: str) -> list[str]:
    return re.findall(r'<polyline class="line [^"]*" data-name="([^"]+)"', box)


def axis(box: str) -> dict[str, str]:
    return dict(re.findall(r'data-(x0|x1|y0|y1|x|scale)="([^"]+)"', box))


def test_all_ranks_are_in_the_chart_and_the_worst_has_a_line(owner, lab):
    job = running(lab, ranks=64)
    report(job, bad=41)
    page = owner.get(f"/jobs/{job.pk}").text
    box = chart(page)
    assert lines(box)[:2] == ["median", "rank 41"] and len(lines(box)) == 4
    assert box.count('<polygon class="band-area') == 2
    assert "rank 41, the worst</li>" in box and "Median, 5th to 95th percentile" in page
    assert float(axis(box)["y1"]) >= 10


def test_ranks_of_the_address_have_lines_too(owner, lab):
    job = running(lab, ranks=64)
    report(job, bad=41)
    assert {"rank 3", "rank 60", "rank 41"} <= set(lines(chart(owner.get(f"/jobs/{job.pk}?ranks=3,60").text)))


def test_until_the_first_roll_up_some_ranks_are_drawn(owner, lab):
    job = running(lab, ranks=64)
    MetricChunk.objects.bulk_create(
        MetricChunk(job=job, attempt=1, rank=rank, name="loss", times=[START], steps=[1], values=[1.0])
        for rank in range(64)
    )
    assert len(lines(chart(owner.get(f"/jobs/{job.pk}").text))) == 16


@pytest.mark.parametrize("ranks", [8, 64])
def test_a_zoom_by_steps_shows_these_steps_only(owner, lab, ranks):
    job = running(lab, ranks=ranks)
    report(job)
    seen = axis(chart(owner.get(f"/jobs/{job.pk}?zoom=50-100").text))
    assert (seen["x"], 50 <= float(seen["x0"]) <= 60, 90 <= float(seen["x1"]) <= 100) == ("step", True, True)


@pytest.mark.parametrize("ranks", [8, 64])
def test_a_zoom_by_time_shows_that_time_only(owner, lab, ranks):
    job = running(lab, ranks=ranks)
    report(job, with_step=False)
    seen = axis(chart(owner.get(f"/jobs/{job.pk}?zoom=1m-2m").text))
    assert (seen["x"], 60 <= float(seen["x0"]) <= 71, 109 <= float(seen["x1"]) <= 120) == ("time", True, True)


def test_a_zoom_beyond_all_values_can_be_undone(owner, lab):
    job = running(lab, ranks=8)
    report(job)
    page = owner.get(f"/jobs/{job.pk}?zoom=100000-200000").text
    assert "Nothing was reported there" in page and 'name="zoom" value="100000-200000"' in page
    assert "is not a valid range" in owner.get(f"/jobs/{job.pk}?zoom=abc").text


def test_a_log_scale_and_smoothing(owner, lab):
    job = running(lab, ranks=8)
    report(job)
    box = chart(owner.get(f"/jobs/{job.pk}?scale=log&smooth=0.9").text)
    assert axis(box)["scale"] == "log" and box.count('class="raw ') == 8 == len(lines(box))
    assert "data-scale" not in chart(owner.get(f"/jobs/{job.pk}?smooth=7").text)


@pytest.mark.parametrize("ranks", [8, 64])
def test_another_job_is_drawn_beside_this_one(owner, lab, ranks):
    job, other = running(lab, ranks=8), running(lab, ranks=ranks)
    report(job)
    report(other)
    box = chart(owner.get(f"/jobs/{job.pk}?with={other.pk}").text)
    assert lines(box)[-1] == f"job {other.pk}" and f"job {other.pk}, {other.name}</li>" in box
    alone = chart(owner.get(f"/jobs/{job.pk}").text)
    assert re.findall('data-now="[^"]*"', box) == re.findall('data-now="[^"]*"', alone), "its header is about this job"


def test_a_job_that_may_not_be_seen_is_not_drawn_beside(as_, people, owner, lab):
    job = running(lab, ranks=8)
    report(job)
    for foreign in ("999999", "99999999999999999999", "x"):
        page = owner.get(f"/jobs/{job.pk}?with={foreign}").text
        assert ("There is no job 999999" in page) == (foreign == "999999")
        assert len(lines(chart(page))) == 8


def test_what_charts_show_is_in_the_address(owner, lab):
    job = running(lab, ranks=8)
    report(job)
    said = {
        "HX-Request": "true", "HX-Target": "section#charts", "HX-Source": "form#chart-form",
        "HX-Current-URL": f"http://testserver/jobs/{job.pk}?rank=3&zoom=1-2",
    }  # fmt: skip
    answer = owner.get(f"/jobs/{job.pk}?zoom=5-9&smooth=&scale=log", headers=said)
    assert answer.headers["HX-Replace-Url"] == f"/jobs/{job.pk}?rank=3&zoom=5-9&scale=log"
    del said["HX-Source"]
    assert "HX-Replace-Url" not in owner.get(f"/jobs/{job.pk}?zoom=5-9", headers=said).headers


@pytest.mark.parametrize(
    ("text", "zoom"),
    [
        ("100-250", Zoom(100, 250, True)), ("250-100", Zoom(100, 250, True)), ("30s-90s", Zoom(30, 90, False)),
        ("1m-1.5h", Zoom(60, 5400, False)), (" 1 - 2", Zoom(1, 2, True)), ("1-2 ", Zoom(1, 2, True)), ("1-2m", None), ("5-5", None), ("", None),
        ("-1-2", None), ("1e3-2e3", None), ("9" * 16 + "-1", None), ("\0", None),
    ],
)  # fmt: skip
def test_a_zoom_is_read_strictly(text, zoom):
    assert zoom_of(text) == zoom


def test_a_log_axis_spans_powers_of_ten():
    up = log_axis([0.003, 40, 0, -1])
    assert (up.low, up.high) == pytest.approx((0.001, 100.0)) and up.ticks[0] == pytest.approx(0.001)
    up = log_axis([1.0])
    assert (up.low, up.high) == (1.0, 10.0) and up.place(1.0) == 0 and up.place(-5) == 0 and up.place(10) == 1
    assert log_axis([0.0, -3.0]) is None
    assert len(log_axis([1e-300, 1e300]).ticks) <= 6


def test_smoothing_begins_at_the_first_value():
    points = smoothed([(0, 4.0), (1, 4.0), (2, 8.0)], 0.5)
    assert points[0] == (0, 4.0) and points[1] == (1, 4.0) and 4 < points[2][1] < 8
