"""How far a job is, by what its first rank reports."""

import pytest
from django.utils import timezone

from jobs.analysis.progress import RECENT_CHUNKS, Progress, progress
from jobs.ingest import apply
from tests.support.builders import batch, identity, item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]


def report(job, seq: int, *points) -> None:
    """Report points of rank 0, each as (seconds from now, step, values)."""
    now = timezone.now().timestamp()
    rows = [[now + at, step, values] for at, step, values in points]
    apply.apply_batch(identity=identity(job), batch=batch(seq, item("metrics", rank=0, points=rows)))


def test_time_left_follows_from_the_recent_speed(lab):
    job = lab.running()
    report(job, 1, (-20, 100, {"total_steps": 1000}), (-10, 150, {"total_steps": 1000}))
    report(job, 2, (0, 200, {"total_steps": 1000, "loss": 1.0}))
    (found,) = progress([job]).values()
    assert (found.step, found.total, round(found.share, 3)) == (200, 1000, 0.2)
    assert found.seconds_left == pytest.approx(160, rel=0.01)
    assert found.words.startswith("about 2 min 4") or found.words.startswith("about 2 min 39")


def test_only_the_recent_part_counts(lab):
    job = lab.running()
    report(job, 1, (-10_000, 1, {"total_steps": 10_000}))
    for number in range(RECENT_CHUNKS):
        report(job, number + 2, (number - RECENT_CHUNKS, 1000 + 10 * number, {"total_steps": 10_000}))
    assert progress([job])[job.pk].seconds_left == pytest.approx((10_000 - 1290) / 10, rel=0.05)


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ([(0, 5, {"loss": 1.0})], None),
        ([(0, None, {"total_steps": 10})], None),
        ([(0, 5, {"total_steps": 0})], None),
        ([(0, 5, {"total_steps": 10})], Progress(5, 10, None)),
        ([(-1, 9, {"total_steps": 10}), (0, 10, {"total_steps": 10})], Progress(10, 10, None)),
        ([(-1, 9, {"total_steps": 10}), (0, 12, {"total_steps": 10})], Progress(12, 10, None)),
        ([(-1, 9, {"total_steps": 10}), (0, 3, {"total_steps": 10})], Progress(3, 10, None)),
    ],
)
def test_what_cannot_be_told_is_left_out(lab, points, found):
    job = lab.running()
    report(job, 1, *points)
    told = progress([job]).get(job.pk)
    assert (told and Progress(told.step, told.total, None)) == found
    if found and found.step >= found.total:
        assert told.seconds_left is None and told.share == 1.0


def test_it_is_in_the_api_and_on_the_page_but_no_chart(owner, lab, htmx):
    job = lab.running()
    report(job, 1, (-10, 100, {"total_steps": 1000, "loss": 2.0}), (0, 200, {"total_steps": 1000, "loss": 1.0}))
    told = owner.get(f"/api/v1/jobs/{job.pk}").json()["progress"]
    assert (told["step"], told["total"], round(told["seconds_left"])) == (200, 1000, 80)
    assert owner.get("/api/v1/jobs").json()["results"][0]["progress"] == told
    page = owner.get(f"/jobs/{job.pk}").text
    assert 'step <b class="num">200</b> of 1,000, 20 % · about 1 min 20 s left' in page
    assert "of 1,000, 20 %" in htmx(owner, f"/jobs/{job.pk}", "ranks").text
    assert "total_steps" not in htmx(owner, f"/jobs/{job.pk}", "charts").text
    lab.finish(job, *(0 for _ in range(job.nodes)))
    assert "left</span>" not in owner.get(f"/jobs/{job.pk}").text


def test_a_job_that_says_nothing_has_no_progress(owner, lab):
    job = lab.running()
    assert owner.get(f"/api/v1/jobs/{job.pk}").json()["progress"] is None
    assert progress([lab.submit()]) == {}


def test_a_total_that_is_told_once_holds_on(lab):
    job = lab.running()
    report(job, 1, (-40, 1, {"total_steps": 1000, "loss": 2.0}))
    for number in range(2, 6):
        report(job, number, (10 * (number - 6), 100 * number, {"loss": 1.0}))
    found = progress([job])[job.pk]
    assert (found.step, found.total) == (500, 1000)
    assert found.seconds_left == pytest.approx(500 * 40 / 499, rel=0.4)


def test_time_left_is_told_of_running_jobs_only(lab):
    job = lab.running()
    report(job, 1, (-20, 100, {"total_steps": 1000}), (0, 200, {"total_steps": 1000}))
    job.phase = "stopping"
    assert progress([job])[job.pk] == Progress(200, 1000, None)


@pytest.mark.parametrize(("still", "is_told"), [(60, True), (300, False)])
def test_no_time_left_is_told_while_nothing_moves(lab, still, is_told):
    job = lab.running()
    report(job, 1, (-still - 20, 100, {"total_steps": 1000}), (-still, 120, {"total_steps": 1000}))
    found = progress([job])[job.pk]
    assert (found.step, found.total) == (120, 1000) and bool(found.words) is is_told


def test_a_job_whose_steps_are_long_is_not_stuck(lab):
    job = lab.running()
    report(job, 1, (-300 - 120, 1, {"total_steps": 10}), (-300, 2, {"total_steps": 10}))
    assert progress([job])[job.pk].words
