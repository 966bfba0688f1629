"""The page of the API's documentation; tests/browser/test_docs_page.py opens it."""

from django.test import Client


def test_the_page_is_linked_and_requires_a_session(as_, people):
    assert Client().get("/api/docs").url.startswith("/login?next=")
    owner = as_(people.owner)
    assert 'href="/api/docs"' in owner.get("/jobs").text
    shown = owner.get("/api/docs").text
    assert "<script>" not in shown and "<style" not in shown and "https://" not in shown


def test_its_assets_are_served_by_muster(client, db):
    for part in ("swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-standalone-preset.js"):
        assert client.get(f"/static/drf_spectacular_sidecar/swagger-ui-dist/{part}").status_code == 200, part
