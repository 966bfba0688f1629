"""What htmx gets where a request does not succeed: never a page, always words, and after a session's end the way to sign in."""

from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from accounts.models import Membership, Role
from common.rates import Buckets
from controlplane import rates
from jobs.models import Job
from tests.support import seed

HTMX = {"HX-Request": "true", "HX-Current-URL": "http://testserver/jobs/7?attempt=1&rank=3"}


def words(answer) -> str:
    assert answer["Content-Type"].startswith("application/problem+json")
    return answer.json()["detail"]


def sign_in(answer) -> dict[str, list[str]]:
    """What the address of the sign-in page says, to which htmx is sent."""
    assert answer.status_code == 401
    assert "<html" not in answer.text
    target = urlsplit(answer["HX-Redirect"])
    assert target.path == "/login"
    return parse_qs(target.query)


@pytest.mark.parametrize("target", ["state", "ranks", "charts", "log", "log-tail", "events", "jobs", "queues", "shape"])
def test_without_a_session_no_sign_in_page_is_swapped_into_a_part(job, target):
    url = {"jobs": "/jobs", "queues": "/queues", "shape": "/jobs/new", "log-tail": f"/jobs/{job.pk}/logs?cursor=x"}
    answer = Client().get(url.get(target, f"/jobs/{job.pk}"), headers={**HTMX, "HX-Target": target})
    assert sign_in(answer) == {"next": ["/jobs/7?attempt=1&rank=3"], "ended": ["look"]}


def test_an_act_without_a_session_leads_to_the_sign_in_and_says_that_nothing_was_done(job):
    asked = sign_in(Client().post(f"/jobs/{job.pk}/cancel", headers=HTMX))
    assert asked == {"next": ["/jobs/7?attempt=1&rank=3"], "ended": ["act"]}
    job.refresh_from_db()
    assert job.cancel_requested_at is None
    page = Client().get("/login", asked).text
    assert "what you asked for was not done" in page
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
def test_the_way_back_is_never_somewhere_else(job, page):
    answer = Client().get(f"/jobs/{job.pk}", headers={"HX-Request": "true", "HX-Current-URL": page})
    assert "next" not in sign_in(answer)


def test_a_browser_without_a_session_is_still_redirected(job):
    assert Client().get(f"/jobs/{job.pk}").url == f"/login?next=/jobs/{job.pk}"


def test_another_redirect_moves_the_whole_page(as_, people, job, settings):
    settings.MUSTER_SECOND_FACTOR = "all"
    answer = as_(people.owner).get(f"/jobs/{job.pk}", headers=HTMX)
    assert (answer.status_code, answer["HX-Redirect"]) == (204, "/account/second-factor")


def test_an_act_that_comes_too_late_says_why(owner, lab, job):
    lab.finish(job, 0, 0)
    answer = owner.post(f"/jobs/{job.pk}/suspend", headers=HTMX)
    assert answer.status_code == 409
    assert "resubmit it to run it again" in words(answer)


def test_an_act_that_is_not_allowed_says_why(as_, people, job):
    answer = as_(people.viewer).post(f"/jobs/{job.pk}/cancel", headers=HTMX)
    assert answer.status_code == 403
    assert words(answer)


def test_a_page_older_than_the_sign_in_says_that_it_must_be_reloaded(people, job):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.owner)
    answer = client.post(f"/jobs/{job.pk}/cancel", headers=HTMX)
    assert answer.status_code == 403
    assert "reload it" in words(answer)
    assert "This form is too old" in client.post(f"/jobs/{job.pk}/cancel").text


def test_a_job_that_is_gone_is_said_so(owner, job):
    pk = job.pk
    Membership.objects.filter(user__username="owner").delete()
    answer = owner.get(f"/jobs/{pk}", headers=HTMX)
    assert (answer.status_code, words(answer)) == (404, "it does not exist, or you may not see it")


def test_too_many_requests_say_when_to_come_again(owner, job, settings, monkeypatch):
    settings.MUSTER_RATE_USER = 1
    monkeypatch.setattr(rates, "buckets", Buckets())
    owner.get("/queues")
    answer = owner.get(f"/jobs/{job.pk}", headers=HTMX)
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    assert "try again in 60 s" in words(answer)


def test_an_error_of_ours_is_said_without_its_inside(owner, job):
    owner.raise_request_exception = False
    Job.objects.filter(pk=job.pk).update(spec={})  # what no release ever wrote
    answer = owner.get(f"/jobs/{job.pk}", headers=HTMX)
    assert answer.status_code == 500
    assert words(answer) == "the server's log has the cause; running jobs are not affected"


def test_a_viewer_who_was_a_member_is_told(as_, people, lab):
    job = seed.running(lab, steps=2)
    client = as_(people.owner)
    Membership.objects.filter(user=people.owner).update(role=Role.VIEWER)
    assert client.post(f"/jobs/{job.pk}/suspend", headers=HTMX).status_code == 403
