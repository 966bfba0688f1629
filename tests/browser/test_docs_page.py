"""/api/docs in a real Chromium: every operation is listed, without a violation of the content security policy."""

import pytest
from django.test import Client
from playwright.sync_api import expect

from tests.browser.conftest import chromium, context, page, site  # noqa: F401 - fixtures


def test_the_documentation_lists_every_operation_under_our_policy(page, site):  # noqa: F811
    """The `page` fixture fails at its end if the console holds an error, and a policy violation is one."""
    page.goto("/api/docs")
    expect(page.locator(".opblock").first).to_be_visible()
    described = page.evaluate(
        """async () => {
            const answer = await fetch("/api/v1/schema", {headers: {Accept: "application/json"}});
            const paths = (await answer.json()).paths;
            return Object.values(paths).flatMap((one) => Object.keys(one)).length;
        }"""
    )
    expect(page.locator(".opblock")).to_have_count(described)
    assert described >= 17


def test_an_operation_can_be_tried_with_the_users_session(page, site):  # noqa: F811
    page.goto("/api/docs")
    page.locator("#operations-me-me .opblock-summary-path").click()
    page.locator("button", has_text="Try it out").click()
    page.locator("button.execute").click()
    expect(page.locator(".live-responses-table .response .response-col_status").first).to_contain_text("200")


def test_the_page_is_linked_and_requires_a_session(as_, people):
    assert Client().get("/api/docs").url.startswith("/login?next=")
    owner = as_(people.owner)
    assert 'href="/api/docs"' in owner.get("/jobs").text
    shown = owner.get("/api/docs").text
    assert "<script>" not in shown and "<style" not in shown and "https://" not in shown


@pytest.mark.parametrize("part", ["swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-standalone-preset.js"])
def test_its_assets_are_served_by_muster(client, db, part):
    assert client.get(f"/static/drf_spectacular_sidecar/swagger-ui-dist/{part}").status_code == 200
