"""/jobs"""

import pytest

from jobs import services
from jobs.web import listing
from tests.support import seed


def test_home_leads_to_the_list(owner):
    assert owner.get("/").url == "/jobs"


def test_without_jobs_the_list_says_how_to_make_one(owner):
    page = owner.get("/jobs").text
    assert "bin/muster submit" in page
    assert "/jobs/new" in page


def test_a_row_tells_state_ranks_and_step_in_words(owner, job):
    page = owner.get("/jobs").text
    assert "Running" in page
    assert "4 of 4" in page
    assert ">20</td>" in page


def test_a_waiting_job_says_why(owner, lab):
    seed.running(lab, nodes=2, per_node=4, steps=2)
    waiting = seed.queued(lab)
    assert waiting.wait_reason in owner.get("/jobs").text


def test_filters_choose_by_state_queue_name_and_person(as_, people, lab, job):
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
def test_what_no_filter_can_take_is_left_out(owner, job, query):
    assert job.name in owner.get(f"/jobs?{query}").text


@pytest.mark.parametrize("query", ["q=%ff", "queue=%ff"])
def test_a_strange_query_is_no_error(owner, query):
    assert owner.get(f"/jobs?{query}").status_code == 200


def test_pages_are_cut_by_key_and_lose_nothing(owner, lab, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    names = [lab.submit(name=f"job-{number}").name for number in range(5)]
    seen, url = [], "/jobs"
    while url:
        answer = owner.get(url)
        seen += [row.job.name for row in answer.context["rows"]]
        older = answer.context["older"]
        url = f"/jobs?before={older}" if older else None
    assert seen == names[::-1]


def test_the_number_of_queries_does_not_grow_with_the_list(owner, lab, django_assert_num_queries):
    queries = 9  # session, person; teams (of jobs, of queues), queues for the filter; page, ranks, failures, count
    seed.running(lab, nodes=2, per_node=2, steps=2)
    with django_assert_num_queries(queries):
        owner.get("/jobs")
    seed.running(lab, nodes=1, per_node=4, steps=2)
    for _ in range(5):
        lab.submit()
    with django_assert_num_queries(queries):
        owner.get("/jobs")


def test_htmx_gets_the_rows_a_browser_the_page(owner, job, htmx):
    part = htmx(owner, "/jobs", "jobs").text
    assert part.startswith('<section id="jobs"')
    assert "<html" not in part
    assert "<html" in owner.get("/jobs").text


def test_a_name_is_never_markup(owner, lab):
    job = lab.submit()
    type(job).objects.filter(pk=job.pk).update(
        name="<script>alert(1)</script>", wait_reason="<img src=x onerror=alert(1)>"
    )
    page = owner.get("/jobs").text
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_cancelled_jobs_are_finished(owner, lab, people):
    job = lab.submit(name="short-lived")
    services.cancel(job=job, by=people.owner)
    lab.visit(job)
    assert "short-lived" in owner.get("/jobs?show=finished").text
