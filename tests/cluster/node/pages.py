"""Pages of an installation with real pods, in a real Chromium."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect, sync_playwright

from tests.support.machine import need_chromium
from tests.support.patience import PATIENCE_SECONDS


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """A page of a browser of its own; addresses are relative to `url`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=need_chromium(), args=["--no-sandbox"])
        context = browser.new_context(base_url=url)
        context.set_default_timeout(1000 * PATIENCE_SECONDS)
        expect.set_options(1000 * PATIENCE_SECONDS)
        yield context.new_page()
        browser.close()


def sign_in_first(page: Page, user: str, given: str, *, chosen: str) -> None:
    """Sign in with the password that somebody else set, and choose another one."""
    page.goto("/login")
    page.fill("[name=username]", user)
    page.fill("[name=password]", given)
    page.locator("form button").first.click()
    page.fill("#id_old_password", given)
    for field in ("#id_new_password1", "#id_new_password2"):
        page.fill(field, chosen)
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("link", name="Queues")).to_be_visible()


def submit_plain(page: Page, command: str, *, queue: str) -> int:
    """Submit a plain job of two nodes without code; return its number."""
    page.goto("/jobs/new")
    page.fill("#id_command", command)
    page.select_option("#id_framework", "plain")
    expect(page.locator("#per-node-label")).to_have_text(
        "Devices per node"
    )  # its fields are there, and nothing moves any more
    page.locator("label").filter(has=page.locator("#code-none")).click()  # its circle is drawn by the label
    expect(page.locator("#code-none")).to_be_checked()
    page.select_option("#id_queue", label=page.locator("#id_queue option", has_text=queue).first.inner_text())
    page.fill("#id_nodes", "2")
    page.fill("#id_nproc_per_node", "1")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).to_have_url(re.compile(r"/jobs/[0-9]+$"), timeout=300_000)
    return int(page.url.rsplit("/", 1)[1])
