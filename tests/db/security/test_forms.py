"""A cross-site request of a browser changes nothing: on every route, with and without htmx."""

from itertools import product

import pytest
from django.test import Client

from common.limits.rates import Buckets
from controlplane.edge import rates
from jobs.models import Job
from tests.db.security.routes import ROUTES, AccessFixture, address, patterns
from tests.support import seed

UNSAFE = ("POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def world(lab, people) -> AccessFixture:
    return AccessFixture(lab, people)


def careless(people) -> Client:
    """Signed in, but sending no CSRF token."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.owner)
    return client


def test_without_a_csrf_token_nothing_is_changed_on_any_route(world, people, monkeypatch):
    """For plain forms and htmx alike, and for the API, which each of its views authenticates itself."""
    before = world.state()
    client = careless(people)
    guarded = sorted(one for one in patterns() if not one.startswith("agent/") and not one.endswith("/login"))
    assert len(guarded) > 80
    for pattern in guarded:
        monkeypatch.setattr(rates, "buckets", Buckets(clock=lambda: 0.0))
        for method, headers in product(UNSAFE, ({}, {"HX-Request": "true", "HX-Target": "state"})):
            answer = client.generic(method, address(pattern, world), b"{}", "application/json", headers=headers)
            assert answer.status_code in (403, 404, 405), (method, pattern, answer.status_code)
            if method in ROUTES[pattern] and not pattern.startswith(("healthz", "readyz")):
                assert answer.status_code == 403, (method, pattern, answer.status_code)
        assert world.state() == before, pattern


def test_a_csrf_token_of_another_session_is_refused(people, lab):
    job = seed.running(lab, steps=5)
    other = Client()
    other.get("/login")
    client = careless(people)
    answer = client.post(f"/jobs/{job.pk}/cancel", headers={"X-CSRFToken": other.cookies["csrftoken"].value})
    assert answer.status_code == 403


def test_htmx_with_the_csrf_token_of_the_page_is_accepted(people, lab):
    import json
    import re

    job = seed.running(lab, steps=5)
    client = careless(people)
    page = client.get(f"/jobs/{job.pk}").text
    sent = json.loads(re.search(r"hx-headers:inherited='([^']+)'", page).group(1))
    assert client.post(f"/jobs/{job.pk}/cancel", headers={**sent, "HX-Request": "true"}).status_code == 200
    assert Job.objects.get(pk=job.pk).cancel_requested_at is not None


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_the_api_accepts_no_content_type_that_a_form_can_send(client, people, kind):
    """A form on another site can send these without a CORS preflight, so they are refused even with a session."""
    client.force_login(people.owner)
    answer = client.generic("POST", "/api/v1/jobs", b'{"queue": "default"}', kind)
    assert answer.status_code == 415
