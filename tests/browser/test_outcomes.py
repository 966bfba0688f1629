"""The page shows the outcome of every click in words: each kind of failure, in a real browser."""

import json
import re

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from accounts.models import Membership, Role, SignIn
from jobs.models import Job


def cancel(page: Page) -> None:
    page.click("summary:has-text('Cancel')")
    page.click("button:text-is('Cancel the job')")


def refresh(page: Page) -> None:
    """Refresh the page as a hint or a poll does."""
    page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")


def still_the_page(page: Page, job: Job) -> None:
    """No other content was swapped into the page."""
    expect(page.locator("h1")).to_contain_text(job.name)
    expect(page.locator("html, main, [name=password]")).to_have_count(2)


def answered(page: Page, status: int, detail: str, **headers: str) -> None:
    body = json.dumps({"type": "about:blank", "title": "x", "status": status, "detail": detail})
    page.route(
        "**/cancel",
        lambda route: route.fulfill(status=status, body=body, content_type="application/problem+json", headers=headers),
    )


@pytest.mark.parametrize("way", ["act", pytest.param("refresh", marks=pytest.mark.full)])
def test_an_ended_session_leads_to_the_sign_in_and_back(open_job, way):
    page, job = open_job
    SignIn.objects.all().delete()
    cancel(page) if way == "act" else refresh(page)
    expect(page).to_have_url(re.compile(r"/login\?"))  # every refused part of the page redirects there
    said = "your change was not made" if way == "act" else "Your session has ended"
    expect(page.locator(".notice")).to_contain_text(said)
    page.fill("[name=username]", "owner")
    page.fill("[name=password]", "owner-has-a-password")
    page.click("button")
    page.wait_for_url(f"**/jobs/{job.pk}?view=list")
    still_the_page(page, job)
    job.refresh_from_db()
    assert job.cancel_requested_at is None


def test_a_forbidden_action_shows_the_refusal(open_job):
    page, job = open_job
    Membership.objects.filter(user__username="owner").update(role=Role.VIEWER)
    cancel(page)
    expect(page.locator("#outcome")).to_contain_text("“Cancel the job” was not done:")
    still_the_page(page, job)


def test_an_action_that_comes_too_late_is_refused_and_the_page_is_updated(open_job):
    page, job = open_job
    Job.objects.filter(pk=job.pk).update(phase="succeeded", finished_at=timezone.now(), message="every replica ended")
    page.click("button:text-is('Suspend')")
    expect(page.locator("#outcome")).to_contain_text("“Suspend” was not done: job")
    expect(page.locator("#outcome")).to_contain_text("resubmit it to run it again")
    expect(page.locator("h1")).to_contain_text("Succeeded")
    expect(page.locator("#outcome")).to_be_visible()


@pytest.mark.parametrize(
    ("status", "detail", "words"),
    [
        (422, "grace_seconds must be at most 3600", "was not done: grace_seconds must be at most 3600."),
        pytest.param(429, "", "was not done: too many requests; try again in 9 s.", marks=pytest.mark.full),
        (
            500,
            "the server's log has the cause",
            "may not have been done: the server failed (500): the server's log has the cause",
        ),
        (503, "", "may not have been done: the server does not answer."),
        pytest.param(418, "", "was not done: the server answered 418.", marks=pytest.mark.full),
    ],
)
def test_each_other_error_status_is_shown(open_job, status, detail, words):
    page, job = open_job
    answered(page, status, detail, **{"Retry-After": "9"})
    cancel(page)
    expect(page.locator("#outcome")).to_contain_text(f"“Cancel the job” {words}")
    still_the_page(page, job)
    page.unroute("**/cancel")
    page.click("button:text-is('Cancel the job')")
    expect(page.locator("h1")).to_contain_text("cancel requested")
    expect(page.locator("#outcome")).to_be_hidden()


def test_a_failed_refresh_marks_the_page_as_stale(open_job):
    page, job = open_job
    Membership.objects.filter(user__username="owner").delete()
    refresh(page)
    expect(page.locator("#stale")).to_contain_text("not up to date: it does not exist, or you may not see it")
    still_the_page(page, job)
    page.locator(".rank-links a", has_text="3").click()
    expect(page.locator("#outcome")).to_contain_text("“3” cannot be shown: it does not exist, or you may not see it.")


@pytest.mark.parametrize("count", [1, 12])
def test_chosen_jobs_are_cancelled_with_the_mouse(page, lab, count):
    """The question must lie where the pointer is: a click by its selector would scroll to what is clipped."""
    jobs = [lab.submit(nodes=1, nproc_per_node=1) for _ in range(count)]
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto("/jobs")
    page.locator(".c-pick input").first.check()
    page.locator("#confirm-bulk summary").click()
    button = page.locator("#confirm-bulk button")
    expect(button).to_be_visible()
    box = button.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert page.evaluate("([x, y]) => document.elementFromPoint(x, y)?.textContent", [x, y]) == "Cancel them"
    page.mouse.click(x, y)
    expect(page.get_by_text("Cancelled: 1 job.")).to_be_visible()
    jobs[-1].refresh_from_db()
    assert jobs[-1].cancel_requested_at or jobs[-1].phase == "cancelled"
