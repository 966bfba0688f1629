"""Forms lose nothing that was put into them, and say what a change does before it is made."""

import re

import pytest
from playwright.sync_api import expect

from accounts.models import Membership, Role
from jobs.core.lifecycle import Phase
from jobs.models import Job
from tests.browser.test_pages import live
from tests.support import seed


def test_an_error_loses_neither_files_nor_secrets(page, queue, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    page.goto("/jobs/new")
    page.fill("#id_command", "python3 train.py")
    page.get_by_text("Environment, volumes, retries and limits").click()
    page.fill("#id_secrets", "TOKEN=abc")
    page.fill("#id_name", "Not A Name")
    page.fill("#id_env", "no equals sign")
    page.set_input_files("#upload-files", script)
    expect(page.locator("[data-chosen]")).to_contain_text("1 file")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#error-name")).to_be_visible()
    expect(page.locator("#error-env")).to_be_visible()
    expect(page.locator("[aria-invalid=true]").first).to_be_focused()
    assert page.input_value("#id_secrets") == "TOKEN=abc"
    assert page.evaluate("document.querySelector('#upload-files').files.length") == 1
    expect(page.locator("[data-chosen]")).to_contain_text("1 file")
    page.fill("#id_name", "a-name")
    page.fill("#id_env", "")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    job = Job.objects.get()
    assert (job.name, job.spec["secrets"], job.workspace is not None) == ("a-name", ["TOKEN"], True)


def test_a_job_is_submitted_while_the_page_still_asks_whether_it_fits(page, queue):
    """Both are requests of one form, and the later one was once dropped, which left the button waiting for ever."""
    page.goto("/jobs/new")
    page.fill("#id_command", "python3 train.py")
    page.locator("label").filter(has=page.locator("#code-none")).click()
    held = []
    page.route(re.compile(r"/jobs/new\?.*nodes=2"), lambda route: held.append(route))
    with page.expect_request(re.compile(r"/jobs/new\?.*nodes=2")):
        page.fill("#id_nodes", "2")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).to_have_url(re.compile(r"/jobs/\d+$"))
    assert held and Job.objects.get().nodes == 2


def test_what_a_change_of_a_queue_does_is_shown_while_typing(page, lab, queue, team, people):
    Membership.objects.filter(team=team, user=people.owner).update(role=Role.ADMIN)
    seed.running(lab, nodes=2, per_node=3, steps=2)
    page.goto("/queues/default")
    page.fill("#id_slots", "4")
    expect(page.locator("#consequence")).to_contain_text("Jobs hold 6 of it now")
    page.fill("#id_slots", "8")
    expect(page.locator("#consequence")).to_have_text("")
    page.fill("#id_slots", "5")
    expect(page.locator("#consequence")).to_contain_text("1 more than the new quota")
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/queues")
    queue.refresh_from_db()
    assert queue.nominal == 5


def test_title_and_icon_of_a_tab_follow_the_state(page, lab):
    job = seed.running(lab, steps=2, name="watched")
    page.goto(f"/jobs/{job.pk}")
    live(page)
    expect(page).to_have_title("Running: watched · Muster")
    assert "state-run" in page.get_attribute("link[rel=icon]", "href")
    Job.objects.filter(pk=job.pk).update(phase=Phase.STOPPING, stop_reason="completed")
    page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")
    expect(page).to_have_title("Stopping: watched · Muster")
    assert "state-warn" in page.get_attribute("link[rel=icon]", "href")


def test_a_list_asked_for_before_a_filter_does_not_bring_the_old_one_back(page, lab):
    for name in ("first", "second"):
        lab.submit(name=name)
    page.goto("/jobs")
    live(page)
    held = []
    page.route(re.compile(r"/jobs$"), lambda route: held.append(route))
    page.evaluate("document.body.dispatchEvent(new Event('jobs-changed'))")
    page.wait_for_function("document.querySelector('#jobs.htmx-request') !== null")
    page.fill("#q", "second")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    assert held
    held[0].continue_()
    page.wait_for_function("document.querySelector('.htmx-request') === null")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)


@pytest.mark.parametrize("theme", ["dark", pytest.param("light", marks=pytest.mark.full)])
def test_the_description_of_the_api_follows_the_theme(page, theme):
    page.emulate_media(color_scheme=theme)
    page.goto("/api/docs")
    expect(page.locator(".opblock").first).to_be_visible()
    colour = page.evaluate("getComputedStyle(document.querySelector('#swagger-ui')).backgroundColor")
    assert colour == ("rgb(28, 32, 34)" if theme == "dark" else "rgb(255, 255, 255)")
