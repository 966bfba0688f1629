"""/jobs"""

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import services
from jobs.models import Rank
from jobs.web import listing
from tests.support import seed


def test_an_empty_list_explains_how_to_submit_a_job(owner, queue):
    page = owner.get("/jobs").text
    assert "muster submit --queue" in page and "pip install http://testserver/client/muster_client-" in page
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


def test_jobs_with_silent_ranks_say_so_and_are_found(owner, lab):
    quiet, busy = (
        seed.running(lab, nodes=1, per_node=2, steps=2, name="quiet"),
        seed.running(lab, nodes=1, per_node=2, steps=2, name="busy"),
    )
    Rank.objects.filter(job=quiet, rank=1).update(cpu=0.01, last_line_at=timezone.now() - timedelta(minutes=6))
    Rank.objects.filter(job=busy, rank=1).update(cpu=0.9, last_line_at=timezone.now() - timedelta(minutes=6))
    page = owner.get("/jobs").text
    assert page.count("1 rank silent") == 1
    found = owner.get("/jobs?silent=1").text
    assert "quiet</a>" in found and "busy</a>" not in found
    page = owner.get(f"/jobs/{quiet.pk}").text
    assert "Rank 1</a> on worker-0: silent for 6 min" in page and page.count('class="cell warn') == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("owner", "Fill in the form"), ("viewer", "ask an administrator of a team to make you a member"),
        ("stranger", "You cannot see any jobs yet"),
    ],
)  # fmt: skip
def test_an_empty_list_says_what_this_role_can_do(as_, people, queue, name, words):
    page = as_(getattr(people, name)).get("/jobs").text
    assert words in page and ("Fill in the form" in page) == (name == "owner")


def test_an_empty_installation_leads_its_administrator_to_a_queue(as_, people):
    people.owner.is_superuser = True
    people.owner.save()
    assert "Create a queue" in as_(people.owner).get("/jobs").text
    assert "Create a queue" in as_(people.owner).get("/queues").text
    assert "Create a queue" not in as_(people.viewer).get("/queues").text
