"""Dragging across a chart zooms all of them; what they show is in the address and survives live updates."""

import re

from playwright.sync_api import expect

from tests.browser.test_focus import news
from tests.browser.test_pages import live
from tests.support import seed


def ends(page) -> tuple[float, float]:
    chart = page.locator(".chart[data-x]").first
    return float(chart.get_attribute("data-x0")), float(chart.get_attribute("data-x1"))


def drag(page, begin: float, end: float) -> None:
    box = page.locator(".chart[data-x] .curves").first.bounding_box()
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()


def test_a_drag_zooms_and_a_double_click_shows_all_again(page, lab):
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.locator("#charts").scroll_into_view_if_needed()
    whole = ends(page)
    drag(page, 0.3, 0.6)
    expect(page).to_have_url(re.compile(r"zoom=\d+-\d+"))
    low, high = ends(page)
    assert whole[0] < low < high < whole[1]
    news(job, 2, 101)
    page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")
    expect(page.locator("#charts")).to_have_attribute("hx-get", re.compile("zoom="))
    assert ends(page) == (low, high)
    page.reload()
    assert ends(page) == (low, high)
    page.locator(".chart[data-x]").first.dblclick(position={"x": 40, "y": 40})
    expect(page).not_to_have_url(re.compile("zoom="))
    assert ends(page)[0] == whole[0]


def test_the_scale_and_the_smoothing_are_chosen_on_the_page(page, lab):
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.get_by_label("Log scale").check()
    expect(page.locator(".chart[data-scale=log]").first).to_be_visible()
    page.get_by_label("Smooth").select_option("0.9")
    expect(page.locator(".chart .raw").first).to_be_attached()
    expect(page).to_have_url(re.compile(r"smooth=0\.9"))
    expect(page).to_have_url(re.compile("scale=log"))
    page.locator(".chart[data-x]").first.hover(position={"x": 60, "y": 40})
    expect(page.locator(".read-out.hover").first).to_contain_text("at step")
