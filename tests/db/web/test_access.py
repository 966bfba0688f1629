"""What pages show and offer to each role. Access to routes is tested in tests/db/security/test_access.py."""

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.functional import SimpleLazyObject

from common.http.error_responses import bad_request, broken, forged

JOB_PAGES = ["job", "job-code", "job-logs", "job-logs-file"]
ACTS = ["job-cancel", "job-suspend", "job-resume", "job-resubmit"]


def test_members_read_and_control_a_job_of_another_member(as_, people, job):
    teammate = as_(people.teammate)
    assert {teammate.get(reverse(page, args=[job.pk])).status_code for page in JOB_PAGES} == {200}
    assert {teammate.post(reverse(act, args=[job.pk])).status_code for act in ACTS} == {302}


def test_a_viewer_sees_no_actions(as_, people, job):
    page = as_(people.viewer).get(f"/jobs/{job.pk}").text
    assert "Suspend" not in page
    assert "Clone and edit" not in page


def test_a_stranger_sees_neither_jobs_nor_queues(as_, people, job):
    stranger = as_(people.stranger)
    assert job.name not in stranger.get("/jobs").text
    assert "queue-default" not in stranger.get("/queues").text


def test_a_viewer_cannot_submit(as_, people, queue):
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


def test_a_stranger_cannot_clone_a_job_of_another_team(as_, people, job):
    assert as_(people.stranger).get(f"/jobs/new?from={job.pk}").status_code == 404


def test_login_redirects_to_the_requested_page(people, job):
    sent = {"username": "owner", "password": "owner-has-a-password", "next": f"/jobs/{job.pk}"}
    assert Client().post("/login", sent).url == f"/jobs/{job.pk}"


def test_a_wrong_password_keeps_the_username(people):
    answer = Client().post("/login", {"username": "owner", "password": "wrong"})
    assert 'value="owner"' in answer.text
    assert 'role="alert"' in answer.text


def test_logging_out_requires_a_post(owner):
    assert owner.get("/logout").status_code == 405
    assert owner.post("/logout").url == "/login"
    assert owner.get("/jobs").status_code == 302


def test_a_form_without_a_csrf_token_changes_nothing(people, job):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.owner)
    answer = client.post(f"/jobs/{job.pk}/cancel")
    assert answer.status_code == 403
    assert "This form has expired" in answer.text
    job.refresh_from_db()
    assert job.cancel_requested_at is None


def test_every_answer_has_a_strict_content_security_policy(client, people):
    for path in ("/login", "/jobs", "/healthz", "/nowhere"):
        policy = client.get(path).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_pages_of_errors_keep_the_navigation(owner, as_, people):
    missing = owner.get("/jobs/999999")
    assert missing.status_code == 404
    assert 'href="/queues"' in missing.text and "Account of" in missing.text
    assert 'href="/queues"' in as_(people.viewer).get("/people").text  # 403


def test_a_page_of_a_failure_asks_for_no_person(db, django_assert_num_queries, rf):
    """The database may be what failed."""
    with django_assert_num_queries(0):
        page = broken(rf.get("/jobs/1"))
    assert page.status_code == 500 and 'href="/queues"' in page.text


def test_a_page_made_before_the_person_is_known_asks_for_none(db, django_assert_num_queries, rf):
    """Outside of the middlewares nobody would give its connection back, and eight such requests would use up the pool."""
    request = rf.get("/account")  # as it is before any middleware has seen it
    request.user = SimpleLazyObject(lambda: pytest.fail("asked who is signed in"))
    with django_assert_num_queries(0):
        assert bad_request(request, ValueError()).status_code == 400
        assert forged(request).status_code == 403
