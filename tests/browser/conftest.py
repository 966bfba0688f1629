"""A real Chromium against the real web process."""

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from queues.models import Queue
from tests.builders import Lab
from tests.machine import need_chromium
from tests.pages.site import Site, serve
from tests.patience import PATIENCE_SECONDS

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def chromium():
    path = need_chromium()
    # Playwright's event loop runs in this thread until it is stopped; Django would refuse to touch the database from it.
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        expect.set_options(1000 * PATIENCE_SECONDS)
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def site(transactional_db, people, queue):
    with serve() as site:
        yield site


@pytest.fixture
def lab(site, people) -> Lab:
    return Lab(Queue.objects.get(name="default"), people.owner)


@pytest.fixture
def context(chromium: Browser, site: Site):
    context = chromium.new_context(base_url=site.url)
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext):
    """A page that is signed in, and at the end was without a single error in its console."""
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.goto("/login")
    page.fill("[name=username]", "owner")
    page.fill("[name=password]", "owner-has-a-password")
    page.click("button")
    page.wait_for_url("**/jobs")
    yield page
    assert troubles == []
