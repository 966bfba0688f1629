"""Every page for every kind of person."""

import pytest
from django.test import Client
from django.urls import reverse

JOB_PAGES = ["job", "job-code", "job-logs", "job-logs-file"]
ACTS = ["job-cancel", "job-suspend", "job-resume", "job-resubmit"]
OWN_PAGES = ["jobs", "job-new", "queues"]


@pytest.mark.parametrize("page", JOB_PAGES)
@pytest.mark.parametrize(
    ("who", "status"), [("owner", 200), ("teammate", 200), ("viewer", 200), ("admin", 200), ("stranger", 404)]
)
def test_members_read_a_job_and_a_stranger_does_not_learn_of_it(as_, people, job, page, who, status):
    assert as_(getattr(people, who)).get(reverse(page, args=[job.pk])).status_code == status


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("who", "status"), [("teammate", 302), ("viewer", 403), ("stranger", 404)])
def test_members_control_a_job_a_viewer_may_not(as_, people, job, act, who, status):
    assert as_(getattr(people, who)).post(reverse(act, args=[job.pk])).status_code == status


@pytest.mark.parametrize("page", [*JOB_PAGES, *ACTS])
def test_who_is_not_signed_in_is_asked_to(job, page):
    url = reverse(page, args=[job.pk])
    answer = Client().post(url) if page in ACTS else Client().get(url)
    assert answer.status_code == 302
    assert answer.url.startswith("/login?next=")


@pytest.mark.parametrize("page", OWN_PAGES)
def test_pages_of_ones_own_need_a_sign_in_too(db, page):
    assert Client().get(reverse(page)).url.startswith("/login?next=")


@pytest.mark.parametrize("act", ACTS)
def test_a_link_can_not_act(owner, job, act):
    assert owner.get(reverse(act, args=[job.pk])).status_code == 405


def test_a_viewer_sees_no_actions(as_, people, job):
    page = as_(people.viewer).get(f"/jobs/{job.pk}").text
    assert "Suspend" not in page
    assert "Clone and edit" not in page


def test_a_stranger_lists_neither_jobs_nor_queues(as_, people, job):
    stranger = as_(people.stranger)
    assert job.name not in stranger.get("/jobs").text
    assert "queue-default" not in stranger.get("/queues").text


def test_a_viewer_can_not_submit(as_, people, queue):
    viewer = as_(people.viewer)
    assert "You cannot submit jobs yet" in viewer.get("/jobs/new").text
    sent = {
        "queue": queue.pk,
        "code": "none",
        "command": "true",
        "nodes": 1,
        "nproc_per_node": 1,
        "idempotency_key": "a",
    }
    assert viewer.post("/jobs/new", sent).status_code == 422


def test_a_stranger_can_not_clone_somebody_elses_job(as_, people, job):
    assert as_(people.stranger).get(f"/jobs/new?from={job.pk}").status_code == 404


def test_signing_in_leads_back_to_the_page_one_wanted(people, job):
    sent = {"username": "owner", "password": "owner-has-a-password", "next": f"/jobs/{job.pk}"}
    assert Client().post("/login", sent).url == f"/jobs/{job.pk}"


def test_a_wrong_password_keeps_the_name(people):
    answer = Client().post("/login", {"username": "owner", "password": "wrong"})
    assert 'value="owner"' in answer.text
    assert 'role="alert"' in answer.text


def test_signing_out_takes_a_post(owner):
    assert owner.get("/logout").status_code == 405
    assert owner.post("/logout").url == "/login"
    assert owner.get("/jobs").status_code == 302


def test_a_form_without_its_token_changes_nothing(people, job):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.owner)
    answer = client.post(f"/jobs/{job.pk}/cancel")
    assert answer.status_code == 403
    assert "This form is too old" in answer.text
    job.refresh_from_db()
    assert job.cancel_requested_at is None


def test_every_answer_forbids_what_a_page_does_not_need(client, people):
    for path in ("/login", "/jobs", "/healthz", "/nowhere"):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
