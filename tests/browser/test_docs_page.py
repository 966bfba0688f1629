"""/api/docs in a real Chromium: every operation is listed, without a violation of the content security policy."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.ci


def test_the_documentation_lists_every_operation_under_our_policy(page, site):
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


def test_an_operation_can_be_tried_with_the_users_session(page, site):
    page.goto("/api/docs")
    page.locator("#operations-me-me .opblock-summary-path").click()
    page.locator("button", has_text="Try it out").click()
    page.locator("button.execute").click()
    expect(page.locator(".live-responses-table .response .response-col_status").first).to_contain_text("200")
