"""Answers to htmx when a request fails: a message instead of a page, and a redirect to the login without a session."""

from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from accounts.models import Membership, Role
from common.limits.rates import Buckets
from controlplane.edge import rates
from jobs.models import Job
from tests.support import seed

HTMX = {"HX-Request": "true", "HX-Current-URL": "http://testserver/jobs/7?attempt=1&rank=3"}


def words(answer) -> str:
    assert answer["Content-Type"].startswith("application/problem+json")
    return answer.json()["detail"]


def sign_in(answer) -> dict[str, list[str]]:
    """The query of the login URL to which htmx is redirected."""
    assert answer.status_code == 401
    assert "<html" not in answer.text
    target = urlsplit(answer["HX-Redirect"])
    assert target.path == "/login"
    return parse_qs(target.query)


@pytest.mark.parametrize("target", ["state", "ranks", "charts", "log", "log-tail", "events", "jobs", "queues", "shape"])
def test_without_a_session_htmx_is_redirected_to_the_login(job, target):
    url = {"jobs": "/jobs", "queues": "/queues", "shape": "/jobs/new", "log-tail": f"/jobs/{job.pk}/logs?cursor=x"}
    answer = Client().get(url.get(target, f"/jobs/{job.pk}"), headers={**HTMX, "HX-Target": target})
    assert sign_in(answer) == {"next": ["/jobs/7?attempt=1&rank=3"], "ended": ["look"]}


def test_an_action_without_a_session_leads_to_the_login_and_is_not_performed(job):
    asked = sign_in(Client().post(f"/jobs/{job.pk}/cancel", headers=HTMX))
    assert asked == {"next": ["/jobs/7?attempt=1&rank=3"], "ended": ["act"]}
    job.refresh_from_db()
    assert job.cancel_requested_at is None
    page = Client().get("/login", asked).text
    assert "your change was not made" in page
    assert 'name="next" value="/jobs/7?attempt=1&amp;rank=3"' in page
    assert "Your session has ended" in Client().get("/login?ended=look").text


@pytest.mark.parametrize(
    "page",
    [
        "https://elsewhere.example/jobs",
        "javascript:alert(1)",
        "//elsewhere.example",
        "http://testserver//elsewhere.example/jobs",
        "http://testserver/\\elsewhere.example",
        "",
    ],
)
def test_the_login_never_redirects_to_another_site(job, page):
    answer = Client().get(f"/jobs/{job.pk}", headers={"HX-Request": "true", "HX-Current-URL": page})
    assert "next" not in sign_in(answer)


def test_a_browser_without_a_session_is_still_redirected(job):
    assert Client().get(f"/jobs/{job.pk}").url == f"/login?next=/jobs/{job.pk}"


def test_any_other_redirect_applies_to_the_whole_page(as_, people, job, settings):
    settings.MUSTER_SECOND_FACTOR = "all"
    answer = as_(people.owner).get(f"/jobs/{job.pk}", headers=HTMX)
    assert (answer.status_code, answer["HX-Redirect"]) == (204, "/account/second-factor")


def test_an_action_on_a_finished_job_gives_the_reason_for_the_refusal(owner, lab, job):
    lab.finish(job, 0, 0)
    answer = owner.post(f"/jobs/{job.pk}/suspend", headers=HTMX)
    assert answer.status_code == 409
    assert "resubmit it to run it again" in words(answer)


def test_an_action_that_is_not_allowed_gives_the_reason(as_, people, job):
    answer = as_(people.viewer).post(f"/jobs/{job.pk}/cancel", headers=HTMX)
    assert answer.status_code == 403
    assert words(answer)


def test_a_page_with_an_outdated_csrf_token_asks_to_reload(people, job):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.owner)
    answer = client.post(f"/jobs/{job.pk}/cancel", headers=HTMX)
    assert answer.status_code == 403
    assert "reload it" in words(answer)
    assert "This form has expired" in client.post(f"/jobs/{job.pk}/cancel").text


def test_a_job_that_can_no_longer_be_read_gets_a_message(owner, job):
    pk = job.pk
    Membership.objects.filter(user__username="owner").delete()
    answer = owner.get(f"/jobs/{pk}", headers=HTMX)
    assert (answer.status_code, words(answer)) == (404, "it does not exist, or you may not see it")


def test_too_many_requests_get_a_message_with_the_time_to_wait(owner, job, settings, monkeypatch):
    settings.MUSTER_RATE_USER = 1
    monkeypatch.setattr(rates, "buckets", Buckets())
    owner.get("/queues")
    answer = owner.get(f"/jobs/{job.pk}", headers=HTMX)
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    assert "try again in 60 s" in words(answer)


def test_a_server_error_gets_a_message_without_internals(owner, job):
    owner.raise_request_exception = False
    Job.objects.filter(pk=job.pk).update(spec={})  # a value that no release has written
    answer = owner.get(f"/jobs/{job.pk}", headers=HTMX)
    assert answer.status_code == 500
    assert words(answer) == "the server's log has the cause; running jobs are not affected"


def test_a_member_demoted_to_viewer_is_refused(as_, people, lab):
    job = seed.running(lab, steps=2)
    client = as_(people.owner)
    Membership.objects.filter(user=people.owner).update(role=Role.VIEWER)
    assert client.post(f"/jobs/{job.pk}/suspend", headers=HTMX).status_code == 403
