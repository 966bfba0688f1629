"""A second factor, set up and used in a real browser, and ending another session."""

import os
import re
from pathlib import Path

import pyotp
import pytest
from playwright.sync_api import expect

from accounts.models import SecondFactor
from tests.browser.conftest import new_context

pytestmark = pytest.mark.ci

RIGHT = "owner-has-a-password"


def shot(page, name: str) -> None:
    """Save a screenshot if MUSTER_SHOTS is set."""
    if folder := os.environ.get("MUSTER_SHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def test_a_second_factor_is_set_up_asked_for_and_removed(page):
    page.goto("/account")
    shot(page, "account")
    page.click("text=Second factor >> nth=-1")
    shot(page, "factor-none")
    page.click("text=Set it up")
    secret = re.sub(r"\s", "", page.inner_text("#factor-secret"))
    page.fill("[name=code]", pyotp.TOTP(secret).now())
    page.fill("[name=password]", RIGHT)
    shot(page, "factor-key")
    page.click("text=Switch it on")
    expect(page.locator(".codes li")).to_have_count(10)
    shot(page, "factor-codes")
    SecondFactor.objects.update(last_step=0)  # as if half a minute had passed
    page.click(".menu summary")
    page.click("text=Sign out")
    page.fill("[name=username]", "owner")
    page.fill("[name=password]", RIGHT)
    page.click("button")
    page.wait_for_url("**/login/code**")
    shot(page, "code")
    page.fill("[name=code]", pyotp.TOTP(secret).now())
    page.click("button")
    page.wait_for_url("**/jobs")
    page.goto("/account/second-factor")
    shot(page, "factor-on")
    page.fill("[name=password]", RIGHT)
    page.click("text=Remove the second factor")
    page.wait_for_selector("text=was removed")


def test_another_session_can_be_ended_from_the_list_of_sessions(page, chromium, site):
    other = new_context(chromium, site).new_page()
    other.goto("/login")
    other.fill("[name=username]", "owner")
    other.fill("[name=password]", RIGHT)
    other.click("button")
    other.wait_for_url("**/jobs")
    page.goto("/account/sessions")
    page.click("summary:has-text('End')")
    shot(page, "sessions")
    page.fill("details[open] [name=password]", RIGHT)
    page.click("text=End it")
    page.wait_for_selector("text=That session was ended")
    other.goto("/jobs")
    assert "/login" in other.url
    other.context.close()
