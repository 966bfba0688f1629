"""The charts of a job page show a bounded part of the metrics, whatever the size and length of the job."""

import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.analysis import metrics
from jobs.ingest import apply
from jobs.models import MetricChunk
from jobs.web import metrics as measures
from tests.support import seed
from tests.support.builders import batch, identity, item

START = 1_763_700_000.0
NAMES = ["accuracy", "loss", "lr", "norm", "tokens", "system/cpu", "system/memory"]


def report(job, *, names, ranks, chunks, attempt=None) -> None:
    MetricChunk.objects.bulk_create(
        (
            MetricChunk(
                job=job, attempt=attempt or job.attempt, rank=rank, name=name,
                times=[START + 10 * number + second for second in range(3)],
                steps=[3 * number + step for step in range(3)], values=[1.0, 2.0, 3.0 + rank],
            )
            for number in range(chunks) for name in names for rank in ranks
        ),
        batch_size=5000,
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_metricchunk")


def big(lab, *, nodes: int):
    lab.queue.nominal = 8 * nodes
    lab.queue.save()
    return lab.running(nodes=nodes, nproc_per_node=8)


def lines(page: str) -> dict[str, list[str]]:
    """The ranks drawn in each chart, by its title."""
    found = {}
    for box in page.split('<figure class="chart-box">')[1:]:
        title = re.search(r"<b>(.*?) <small>", box)[1]
        found[title] = re.findall(r'<polyline class="line [^"]*" data-name="rank (\d+)"', box)
    return found


def rows_read(captured) -> int:
    """Rows of metric chunks that the queries touched, as counted by Postgres.

    By the plan of a large table: of a small one Postgres may read the whole again and again, as its pages are few.
    """
    total = 0
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    for query in captured:
        if "jobs_metricchunk" not in query["sql"]:
            continue
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + query["sql"].replace("%", "%%"), [])
            (plan,) = cursor.fetchone()
        total += _touched((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    return total


def _touched(node) -> float:
    own = 0
    if node.get("Relation Name") == "jobs_metricchunk":
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return own + sum(_touched(one) for one in node.get("Plans", []))


@pytest.mark.parametrize("nodes", [8, 128])
def test_a_page_reads_at_most_8_series_of_16_ranks(owner, lab, htmx, nodes):
    job = big(lab, nodes=nodes)
    report(job, names=[*NAMES, "z1", "z2", "z3"], ranks=range(8 * nodes), chunks=2)
    report(job, names=["loss"], ranks=range(4), chunks=400)
    with CaptureQueriesContext(connection) as captured:
        page = owner.get(f"/jobs/{job.pk}").text
    drawn = lines(page)
    assert len(drawn) == 8 and all(len(ranks) == 16 for ranks in drawn.values())
    assert len([one for one in captured if "jobs_metricchunk" in one["sql"]]) == 5  # one of them: how far the job is
    read = rows_read(list(captured))
    # Per line: its two ends, up to 61 rows counted, 60 found and 60 fetched; plus the steps that select the ranks.
    assert read <= 8 * 16 * (2 + 61 + 60 + 60 + 4), read
    with CaptureQueriesContext(connection) as captured:
        htmx(owner, f"/jobs/{job.pk}", "charts")
    assert rows_read(list(captured)) == read


def test_ranks_are_spread_evenly_and_the_page_shows_the_total(owner, lab):
    job = big(lab, nodes=128)
    report(job, names=["loss"], ranks=range(1024), chunks=1)
    page = owner.get(f"/jobs/{job.pk}").text
    shown = [int(rank) for rank in lines(page)["loss"]]
    assert (shown[0], shown[-1], len(shown)) == (0, 1023, 16)
    assert all(60 <= later - before <= 76 for before, later in zip(shown, shown[1:], strict=False))
    assert "at most 16 of 1,024 ranks" in page


def test_ranks_in_the_url_are_drawn_and_stay_when_the_charts_are_refreshed(owner, lab, htmx):
    job = big(lab, nodes=128)
    report(job, names=["loss"], ranks=range(1024), chunks=1)
    page = owner.get(f"/jobs/{job.pk}?ranks=3,%20701&rank=9").text
    assert {"3", "701", "9"} <= set(lines(page)["loss"])
    assert len(lines(page)["loss"]) == 16
    again = re.search(r'<section id="charts"[^>]* hx-get="([^"]+)"', page)[1].replace("&amp;", "&")
    assert lines(htmx(owner, again, "charts").text) == lines(page)
    assert owner.get(f"/jobs/{job.pk}?ranks=x,,-1,99999999999999,%01&rank=99").status_code == 200


def test_the_rank_that_failed_first_is_drawn_and_named(owner, lab):
    lab.queue.nominal = 32
    lab.queue.save()
    job = seed.failed(lab, rank=13, nodes=4, per_node=8, steps=2)
    report(job, names=["tokens"], ranks=range(32), chunks=1)
    page = owner.get(f"/jobs/{job.pk}").text
    assert "13" in lines(page)["tokens"]
    assert "rank 13, which failed first" in page
    assert "13 failed first</li>" in page


def test_a_series_that_few_ranks_report_shows_all_of_them(lab):
    job = big(lab, nodes=128)
    report(job, names=["loss"], ranks=[0, 1, 2, 1000], chunks=1)
    report(job, names=["eval"], ranks=range(0, 1024, 8), chunks=1)
    found = metrics.some_series(job=job, attempt=job.attempt, names=["loss", "eval", "nobody"])
    assert [one.rank for one in found if one.name == "loss"] == [0, 1, 2, 1000]
    assert len([one for one in found if one.name == "eval"]) == 16


def test_charts_are_paginated(owner, lab):
    job = seed.running(lab, steps=2)
    report(job, names=[f"m{number:02}" for number in range(9)], ranks=[0], chunks=2)
    first = owner.get(f"/jobs/{job.pk}").text
    assert "1 to 6 of 11 series" in first
    assert list(lines(first))[:3] == ["accuracy", "loss", "m00"] and "CPU cores" in lines(first)
    second = owner.get(f"/jobs/{job.pk}?metrics=2").text
    assert "7 to 11 of 11 series" in second and "m08" in lines(second)
    assert list(lines(owner.get(f"/jobs/{job.pk}?metrics=99").text)) == list(lines(second))


def test_a_long_series_keeps_its_beginning_and_its_end(lab):
    job = lab.running()
    report(job, names=["loss"], ranks=[0], chunks=1000)
    (series,) = metrics.some_series(job=job, attempt=job.attempt, names=["loss"])
    assert 300 <= len(series.points) <= metrics.MAX_POINTS
    assert series.points[0][1] < 60 and series.points[-1][1] == 2999


def test_each_attempt_has_its_own_charts(owner, lab, htmx):
    job = lab.visit(seed.failed(lab, steps=10, max_retries=1), times=4)
    assert job.attempt == 2
    report(job, names=["second"], ranks=[0], chunks=2)
    assert "loss" in lines(htmx(owner, f"/jobs/{job.pk}?attempt=1", "charts").text)
    assert "second" not in lines(htmx(owner, f"/jobs/{job.pk}?attempt=1", "charts").text)
    assert list(lines(htmx(owner, f"/jobs/{job.pk}", "charts").text)) == ["second"]


def test_a_job_without_metrics_explains_how_to_report_them(owner, lab):
    assert "No metrics reported yet" in owner.get(f"/jobs/{lab.running().pk}").text
    drawing = measures.drawn(lab.running(), attempt=1)
    assert (drawing.reported, drawing.earlier, drawing.later) == ([], None, None)


def test_ingested_values_are_shown_on_the_page(owner, lab):
    job = lab.running()
    at = timezone.now().timestamp()
    apply.apply_batch(identity=identity(job), batch=batch(1, item("metrics", rank=0, points=[[at, 1, {"loss": 0.25}]])))
    assert 'data-now="0.25"' in owner.get(f"/jobs/{job.pk}").text


def test_the_rows_read_do_not_depend_on_the_number_of_ranks(lab):
    """Except for the steps that select the ranks."""
    read = []
    for nodes in (8, 128):
        job = big(lab, nodes=nodes)
        report(job, names=["loss"], ranks=range(8 * nodes), chunks=2)
        with CaptureQueriesContext(connection) as captured:
            measures.drawn(job, attempt=job.attempt)
        read.append(rows_read(list(captured)))
    assert abs(read[0] - read[1]) <= 16, read
