"""A real Chromium against the real web process."""

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from queues.models import Queue
from tests.support import seed
from tests.support.builders import Lab
from tests.support.machine import need_chromium
from tests.support.patience import PATIENCE_SECONDS
from tests.support.site import Site

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
COUNT_SYNCS = "window.syncs = 0; addEventListener('live-sync', () => { window.syncs += 1 }, true)"
POLL_MS = 30_000  # templates poll every minute if no hint comes
NO_POLLING = (
    f"{{const set = setInterval; window.setInterval = (f, ms, ...more) => ms >= {POLL_MS} ? 0 : set(f, ms, ...more)}}"
)


@pytest.fixture(scope="package")
def chromium():
    """One for all tests; each has a context of its own."""
    path = need_chromium()
    # Playwright's event loop runs in this thread until it is stopped; Django would refuse to touch the database from it.
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        expect.set_options(1000 * PATIENCE_SECONDS)
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=1000 * PATIENCE_SECONDS)
        yield browser
        browser.close()


@pytest.fixture
def site(site, queue):
    return site


@pytest.fixture
def lab(site, people) -> Lab:
    return Lab(Queue.objects.get(name="default"), people.owner)


def new_context(chromium: Browser, site: Site, **options) -> BrowserContext:
    """A context whose pages update only by hints, with polling disabled."""
    context = chromium.new_context(base_url=site.url, **options)
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    context.add_init_script(COUNT_SYNCS)
    context.add_init_script(NO_POLLING)
    return context


def sign_in(page: Page) -> None:
    page.goto("/login")
    page.fill("[name=username]", "owner")
    page.fill("[name=password]", "owner-has-a-password")
    page.click("button")
    page.wait_for_url("**/jobs")


@pytest.fixture
def context(chromium: Browser, site: Site):
    context = new_context(chromium, site)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext):
    """A signed-in page; its console must stay without errors until the end of the test."""
    page = context.new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    sign_in(page)
    yield page
    assert troubles == []


@pytest.fixture
def open_job(context, lab):
    """The page of a running job, signed in and without hints: it changes only by the actions of the test."""
    context.add_init_script(
        "delete window.SharedWorker; window.EventSource = class { addEventListener() {} close() {} };"
    )
    page = context.new_page()
    sign_in(page)
    job = seed.running(lab, steps=5)
    page.goto(f"/jobs/{job.pk}?view=list")
    return page, job
