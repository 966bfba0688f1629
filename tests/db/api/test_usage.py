"""/api/v1/usage, /usage and /usage.csv: who used what, for those who may see it."""

import csv
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest

from jobs.models import Attempt, Job, RemovedJob
from jobs.scheduling import usage_report
from jobs.scheduling.usage_report import Row
from jobs.web import usage
from queues.models import Queue
from tests.support.builders import Lab

DAY = datetime(2026, 3, 10, tzinfo=UTC)
MARCH = "since=2026-03-01&until=2026-04-01"


def held(lab: Lab, hours: float, *, day: datetime = DAY, **sent) -> Job:
    """A job with one attempt of so many hours on 4 slots, which failed."""
    job = lab.submit(**sent)
    ended = day + timedelta(hours=hours)
    Attempt.objects.create(
        job=job, number=1, cluster="local", launched_at=day, running_at=day + timedelta(hours=1), ended_at=ended,
        outcome="failed", reason="failed",
    )  # fmt: skip
    Job.objects.filter(pk=job.pk).update(phase="failed", finished_at=ended, attempt=1)
    return job


@pytest.fixture
def used(lab, people) -> list[Job]:
    Queue.objects.create(name="big", team=lab.queue.team, cluster="local", resource="gpu", nominal=8, gpus_per_node=8)
    big = Lab(Queue.objects.get(name="big"), people.teammate)
    later = DAY + timedelta(days=1)
    return [held(lab, 2), held(lab, 3, name="long"), held(big, 10, day=later)]


def test_sums_by_what_is_asked_for_the_largest_first(used, as_, people):
    get = as_(people.viewer).get
    rows = get(f"/api/v1/usage?{MARCH}").json()["results"]
    assert [(one["resource"], one["team"], one["hours"], one["lost"]) for one in rows] == [
        ("cpu", "nlp", 20, 20), ("gpu", "nlp", 40, 40),
    ]  # fmt: skip
    rows = get(f"/api/v1/usage?{MARCH}&by=job&team=nlp").json()["results"]
    assert [(one["name"], one["queue"], one["user"], one["hours"]) for one in rows] == [
        ("long", "default", "owner", 12), (used[0].name, "default", "owner", 8), (used[2].name, "big", "teammate", 40),
    ]  # fmt: skip
    rows = get(f"/api/v1/usage?{MARCH}&by=user&step=day").json()["results"]
    assert [(one["begins"][:10], one["user"], one["hours"]) for one in rows] == [
        ("2026-03-10", "owner", 20), ("2026-03-11", "teammate", 40),
    ]  # fmt: skip


def test_nobody_sees_what_other_teams_used(used, as_, people):
    for path in ("/api/v1/usage", "/usage", "/usage.csv"):
        answer = as_(people.stranger).get(f"{path}?{MARCH}&by=job")
        assert answer.status_code == 200 and "long" not in answer.text
        assert as_(people.stranger).get(f"{path}?{MARCH}&team=nlp").status_code == 422
    assert "No job of these queues held anything" in as_(people.stranger).get(f"/usage?{MARCH}").text


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=colour", "by"), ("since=yesterday", "since"), ("until=2026-02-30", "until"), ("step=hour", "step"),
        ("since=2026-03-02&until=2026-03-02", "since"), ("since=2024-01-01&until=2026-03-02", "since"), ("team=nowhere", "team"),
        ("since=9999-12-31", "since"), ("until=0001-01-01", "until"),
    ],
)  # fmt: skip
def test_bad_input_names_the_field(query, field, used, as_, people):
    answer = as_(people.viewer).get(f"/api/v1/usage?{query}")
    assert answer.status_code == 422 and f'"{field}"' in answer.text, answer.text
    for path in ("/usage", "/usage.csv"):
        page = as_(people.viewer).get(f"{path}?{query}")
        assert page.status_code == 422 and 'role="alert"' in page.text


def test_the_page_shows_bars_sums_and_links_to_the_same_as_csv(used, as_, people):
    page = as_(people.viewer).get(f"/usage?{MARCH}&by=user").text
    assert "40.0 GPU hours" in page and "20.0 CPU slot hours" in page
    assert "10 Mar: owner 20.0 h" in page and "11 Mar: teammate 40.0 h" in page
    assert "/usage.csv?by=user&amp;team=&amp;since=2026-03-01&amp;until=2026-04-01&amp;step=day" in page
    text = as_(people.viewer).get(f"/usage.csv?{MARCH}&by=user&step=day").text
    (first, second) = csv.DictReader(StringIO(text))
    assert (first["begins"], first["user"], float(first["hours"])) == ("2026-03-10", "owner", 20)
    assert (second["resource"], second["team"], second["job"]) == ("gpu", "nlp", "")


def row(name: str, hours: float, day: datetime = DAY) -> Row:
    return Row(day, "gpu", "nlp", "", name, None, "", hours, 0.0, 0.0, 0.0)


def test_a_formula_in_a_name_is_text_in_a_spreadsheet():
    assert ",'=1+1," in usage_report.as_csv([row("=1+1", 2.0)])


def test_bars_name_the_largest_and_add_up_to_the_day():
    ask = usage_report.Ask("user", DAY, DAY + timedelta(days=2))
    days = [row(f"u{number}", float(number)) for number in range(1, 11)]
    found = usage.usage_of("gpu", [], days, ask)
    assert [name for name, _ in found.legend] == ["u10", "u9", "u8", "u7", "u6", "u5", "u4", "others"]
    first, second = found.bars
    assert found.most == 55 and second.pieces == []
    assert sum(piece.height for piece in first.pieces) == pytest.approx(100) and first.pieces[-1].y == pytest.approx(0)


def test_a_removed_job_is_named_without_a_link_to_a_page_that_is_gone(used, lab, as_, people):
    RemovedJob.objects.create(
        id=10**6, uid="x", team=lab.queue.team, queue=lab.queue, user=people.teammate, name="gone", framework="torchrun",
        phase="succeeded", slots=2, attempt=1, held_seconds=3600, created_at=DAY, finished_at=DAY + timedelta(hours=2),
    )  # fmt: skip
    page = as_(people.viewer).get(f"/usage?{MARCH}&by=job").text
    assert f'href="/jobs/{used[1].pk}"' in page
    assert "1000000, removed" in page and 'href="/jobs/1000000"' not in page
