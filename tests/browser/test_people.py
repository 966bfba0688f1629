"""Pages for accounts and teams in a real browser: they fit a phone, confirm removals, and work with and without scripts."""

import pytest
from playwright.sync_api import expect

from accounts import members
from accounts.models import Membership, Role, Team, Token, User
from jobs import services
from jobs.models import Webhook
from tests.browser.conftest import new_context
from tests.support import seed

PAGES = [
    "/account",
    "/account/password",
    "/account/tokens",
    "/teams",
    "/teams/nlp",
    "/teams/nlp/audit",
    "/teams/nlp/webhooks",
    "/teams/nlp/webhooks/chat",
    "/queues/default",
]


@pytest.fixture
def boss(people) -> User:
    """The signed-in user, as administrator of the team."""
    Membership.objects.filter(user=people.owner).update(role=Role.ADMIN)
    return people.owner


def test_nothing_is_wider_than_a_phone(boss, page, lab):
    job = lab.submit(name="a-name-as-long-as-they-are-allowed-to-be")
    services.suspend(job=job, by=boss)
    members.make_service_account(team=Team.objects.get(name="nlp"), name="a" * 40, role="member", by=boss)
    Token.issue(boss, "x" * 80, scope="manage")
    seed.webhook(job.team, job=job)
    page.set_viewport_size({"width": 375, "height": 800})
    for url in PAGES:
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, url


# Every control of the open sheet lies in the window, and under the pointer.
REACHED = """() => [...document.querySelectorAll("details[open] .sheet :is(button, input:not([type=hidden]))")].map((one) => {
  const { left, right, top, height } = one.getBoundingClientRect(), found = document.elementFromPoint((left + right) / 2, top + height / 2);
  return [left >= 0 && right <= innerWidth, found === one || one.contains(found)];
})"""


@pytest.mark.parametrize("width", [390, 1280])
def test_what_a_button_opens_is_reached_with_the_pointer(page, lab, people, width):
    User.objects.filter(pk=people.owner.pk).update(is_superuser=True, is_staff=True)
    job = seed.running(lab, steps=2)
    page.set_viewport_size({"width": width, "height": 800})
    for url, button in ((f"/jobs/{job.pk}", "Cancel"), ("/people", "Change")):
        page.goto(url)
        page.locator("summary", has_text=button).first.click()
        found = page.evaluate(REACHED)
        assert found and all(all(one) for one in found), (url, found)


def test_a_token_of_a_service_account_is_created_shown_once_and_revoked(boss, page):
    page.goto("/teams/nlp")
    page.fill("[name=name]", "nightly")
    page.click("button:has-text('Create')")
    page.click("tr:has-text('nightly@nlp') >> text=Token")
    page.wait_for_url("**/tokens**")  # the previous page has a field of the same name
    page.fill("[name=name]", "nightly run")
    page.click("button:has-text('Create token')")
    text = page.locator("#token-text").inner_text()
    assert Token.objects.valid().get(digest=Token.digest_of(text)).user.username == "nightly@nlp"
    page.goto("/account/tokens")
    expect(page.locator("main")).not_to_contain_text(text)
    page.click("summary:has-text('Revoke')")
    page.click("button:has-text('Revoke the token')")
    expect(page.locator("tr", has_text="nightly run")).to_contain_text("Revoked")


def test_removing_a_member_asks_for_confirmation(boss, page, lab):
    page.goto("/teams/nlp")
    row = page.locator("tr:has(b:text-is('viewer'))")
    row.locator("summary").click()
    expect(row.locator("form.sheet")).to_contain_text("Remove viewer?")
    assert Membership.objects.filter(user__username="viewer").exists()
    row.locator("button.solid").click()
    expect(page.locator(".notice.success")).to_contain_text("no longer in nlp")
    assert not Membership.objects.filter(user__username="viewer").exists()


def test_the_quota_is_changed_without_javascript(boss, chromium, site, queue):
    context = new_context(chromium, site, java_script_enabled=False)
    page = context.new_page()
    page.goto("/login?next=/queues")
    page.fill("[name=username]", "owner")
    page.fill("[name=password]", "owner-has-a-password")
    page.click("button")
    page.click("text=Change")
    page.fill("[name=slots]", "6")
    page.uncheck("[name=is_open]")
    page.click("button:text-is('Save')")
    expect(page.locator("#queue-default")).to_contain_text("0 of 6")
    expect(page.locator("#queue-default")).to_contain_text("Closed")
    context.close()


def test_a_webhook_is_created_its_secret_shown_once_and_removed(boss, page):
    page.goto("/teams/nlp")
    page.click("text=Manage webhooks and deliveries")
    page.fill("[name=name]", "chat")
    page.fill("[name=url]", "https://93.184.216.34/hooks/path-secret")
    page.select_option("[name=format]", "slack")
    page.check("text=Only jobs that name it")
    page.click("button:has-text('Create webhook')")
    assert page.locator("#secret-text").inner_text().startswith("whsec_")
    page.goto("/teams/nlp/webhooks/chat")
    expect(page.locator("main")).to_contain_text("end, failure of jobs that name it")
    for hidden in ("whsec_", "path-secret"):
        expect(page.locator("main")).not_to_contain_text(hidden)
    page.click("summary:has-text('Remove the webhook')")
    page.click("button:has-text('Remove it')")
    expect(page.locator(".notice.success")).to_contain_text("chat and its history were removed")
    assert not Webhook.objects.exists()
