"""/jobs"""

import pytest

from jobs import services
from jobs.web import listing
from tests.support import seed


def test_home_redirects_to_the_list(owner):
    assert owner.get("/").url == "/jobs"


def test_an_empty_list_explains_how_to_submit_a_job(owner):
    page = owner.get("/jobs").text
    assert "bin/muster submit" in page
    assert "/jobs/new" in page


def test_a_row_shows_state_ranks_and_step(owner, job):
    page = owner.get("/jobs").text
    assert "Running" in page
    assert "4 of 4" in page
    assert ">20</td>" in page


def test_a_waiting_job_shows_its_reason(owner, lab):
    seed.running(lab, nodes=2, per_node=4, steps=2)
    waiting = seed.queued(lab)
    assert waiting.wait_reason in owner.get("/jobs").text


def test_jobs_are_filtered_by_state_queue_name_and_user(as_, people, lab, job):
    done = lab.finish(seed.running(lab, name="eval-nightly", steps=2), 0, 0)
    client = as_(people.owner)
    active = client.get("/jobs?show=active").text
    assert job.name in active
    assert done.name not in active
    assert job.name not in client.get("/jobs?show=finished").text
    assert job.name not in client.get("/jobs?q=nightly").text
    assert job.name not in client.get("/jobs?queue=other").text
    assert job.name not in as_(people.teammate).get("/jobs?mine=1").text


@pytest.mark.parametrize(
    "query",
    [
        "before=x",
        "before=-1",
        "show=%01",
        "show=no",
        "mine=2",
        "kind=sabotage",
        "phase=dreaming",
        "q=" + "x" * 81,
        "before=" + "9" * 30,
    ],
)
def test_invalid_filters_are_ignored(owner, job, query):
    assert job.name in owner.get(f"/jobs?{query}").text


@pytest.mark.parametrize("query", ["q=%ff", "queue=%ff"])
def test_an_undecodable_query_is_no_error(owner, query):
    assert owner.get(f"/jobs?{query}").status_code == 200


def test_pages_together_contain_every_job_once(owner, lab, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    names = [lab.submit(name=f"job-{number}").name for number in range(5)]
    seen, url = [], "/jobs"
    while url:
        answer = owner.get(url)
        seen += [row.job.name for row in answer.context["rows"]]
        older = answer.context["older"]
        url = f"/jobs?before={older}" if older else None
    assert seen == names[::-1]


def test_the_query_count_does_not_depend_on_the_length_of_the_list(owner, lab, django_assert_num_queries):
    # session, user; teams (of jobs, of queues, to control), queues for the filter; page, ranks, failures, admissions,
    # newest values, progress, count
    queries = 13
    seed.running(lab, nodes=2, per_node=2, steps=2)
    with django_assert_num_queries(queries):
        owner.get("/jobs")
    seed.running(lab, nodes=1, per_node=4, steps=2)
    for _ in range(5):
        lab.submit()
    with django_assert_num_queries(queries):
        owner.get("/jobs")


def test_htmx_gets_only_the_rows_and_a_browser_the_page(owner, job, htmx):
    part = htmx(owner, "/jobs", "jobs").text
    assert part.startswith('<section id="jobs"')
    assert "<html" not in part
    assert "<html" in owner.get("/jobs").text


def test_names_are_escaped(owner, lab):
    job = lab.submit()
    type(job).objects.filter(pk=job.pk).update(
        name="<script>alert(1)</script>", wait_reason="<img src=x onerror=alert(1)>"
    )
    page = owner.get("/jobs").text
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_cancelled_jobs_are_listed_as_finished(owner, lab, people):
    job = lab.submit(name="short-lived")
    services.cancel(job=job, by=people.owner)
    lab.visit(job)
    assert "short-lived" in owner.get("/jobs?show=finished").text
