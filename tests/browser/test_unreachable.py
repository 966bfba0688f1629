"""What a page says while its server is gone. In a file of its own, since the tests of a file share one server."""

import os
import signal

from playwright.sync_api import expect

from tests.browser.test_outcomes import cancel, refresh, still_the_page


def test_an_unreachable_server_is_shown_until_it_is_back(open_job, site):
    page, job = open_job
    os.kill(site.pid, signal.SIGKILL)
    cancel(page)
    expect(page.locator("#outcome")).to_contain_text(
        "“Cancel the job” may not have been done: the server does not answer"
    )
    still_the_page(page, job)
    expect(page.locator("button:text-is('Cancel the job')")).to_be_enabled()
    refresh(page)
    expect(page.locator("#stale")).to_contain_text("This page is not up to date: the server does not answer")
    page.route("**/jobs/**", lambda route: route.fulfill(status=200, body="<section id='charts'>back</section>"))
    refresh(page)
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#outcome")).to_be_visible()
    page.click("[data-outcome-close]")
    expect(page.locator("#outcome")).to_be_hidden()
