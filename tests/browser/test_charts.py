"""Dragging across a chart zooms all of them; what they show is in the address and survives live updates."""

import re

from playwright.sync_api import expect

from tests.browser.test_focus import news
from tests.browser.test_pages import live
from tests.support import seed


def ends(page) -> tuple[float, float]:
    chart = page.locator(".chart[data-x]").first
    return float(chart.get_attribute("data-x0")), float(chart.get_attribute("data-x1"))


def has_left(page, ends_before: tuple[float, float]) -> None:
    """Wait until the drawing shows another range: the address changes a moment before it."""
    script = "([x0, x1]) => { const { dataset } = document.querySelector('.chart[data-x]'); return dataset.x0 != x0 || dataset.x1 != x1; }"
    page.wait_for_function(script, arg=list(ends_before))


def drag(page, begin: float, end: float) -> None:
    box = page.locator(".plot .u-over").first.bounding_box()
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()


def test_a_zoom_that_is_typed_and_entered_shows_no_failure(page, lab):
    """Enter is a change of the field and a submission: two requests, of which none may be broken off."""
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.fill("#chart-form [name=zoom]", "20-60")
    page.press("#chart-form [name=zoom]", "Enter")
    expect(page).to_have_url(re.compile(r"zoom=20-60"))
    expect(page.locator("#charts")).to_have_attribute("hx-get", re.compile("zoom=20-60"))
    expect(page.locator("#outcome")).to_be_hidden()


def test_a_drag_zooms_and_a_double_click_shows_all_again(page, lab):
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.locator("#charts").scroll_into_view_if_needed()
    whole = ends(page)
    drag(page, 0.3, 0.6)
    expect(page).to_have_url(re.compile(r"zoom=\d+-\d+"))
    has_left(page, whole)
    low, high = ends(page)
    assert whole[0] < low < high < whole[1]
    news(job, 2, 101)
    page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")
    expect(page.locator("#charts")).to_have_attribute("hx-get", re.compile("zoom="))
    assert ends(page) == (low, high)
    page.reload()
    assert ends(page) == (low, high)
    page.locator(".plot .u-over").first.dblclick(position={"x": 40, "y": 40})
    expect(page).not_to_have_url(re.compile("zoom="))
    has_left(page, (low, high))
    assert ends(page)[0] == whole[0]


def test_the_scale_and_the_smoothing_are_chosen_on_the_page(page, lab):
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.get_by_label("Log scale").check()
    expect(page.locator(".chart[data-scale=log]").first).to_be_attached()
    page.get_by_label("Smooth").select_option("0.9")
    expect(page.locator(".chart .raw").first).to_be_attached()
    expect(page).to_have_url(re.compile(r"smooth=0\.9"))
    expect(page).to_have_url(re.compile("scale=log"))
    page.locator(".plot .u-over").first.hover(position={"x": 60, "y": 40})
    expect(page.locator(".read-out.hover").first).to_contain_text("at step")


PAINTED = """canvas => {
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, seen = {};
    for (let at = 0; at < data.length; at += 4) {
        const colour = data.slice(at, at + 4).join();
        seen[colour] = (seen[colour] ?? 0) + 1;
    }
    return seen;
}"""


def test_a_plot_is_painted_in_the_colours_of_the_theme(page, lab):
    """The canvas of the first chart holds its line's colour, at both themes, and nothing of the other theme's text."""
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    canvas = page.locator(".plot canvas").first
    seen = []
    for theme in ("light", "dark"):
        page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        colour = page.locator(".chart polyline").first.evaluate("line => getComputedStyle(line).stroke")
        numbers = ",".join(re.findall(r"\d+", colour)[:3]) + ",255"
        page.wait_for_function(f"canvas => ({PAINTED})(canvas)[{numbers!r}] > 20", arg=canvas.element_handle())
        seen.append(canvas.evaluate(PAINTED))
    assert seen[0] != seen[1]


def test_the_pointer_reads_all_charts_at_once_and_a_plot_outlives_updates(page, lab):
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.locator(".plot .u-over").first.hover(position={"x": 60, "y": 40})
    expect(page.locator(".read-out.hover")).to_have_count(page.locator('.chart[data-x="step"]').count())
    chart = page.locator(".chart[data-x=step]").nth(1)  # the loss, which the news are about
    before = chart.get_attribute("data-x1")
    news(job, 2, 151)
    page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")
    expect(chart).not_to_have_attribute("data-x1", before)
    expect(page.locator(".plot canvas").first).to_be_visible()
    expect(page.locator(".read-out.hover").first).to_contain_text("at step")


def test_what_is_dragged_across_stays_as_it_was_until_the_button_is_released(page, lab):
    """An update in between does not change what was chosen: half of the old axis, not half of the new one."""
    job = seed.running(lab, steps=100)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.locator("#charts").scroll_into_view_if_needed()
    begin, end = ends(page)
    box = page.locator(".plot .u-over").nth(1).bounding_box()
    canvas = page.locator(".plot canvas").nth(1).element_handle()
    chart = page.locator(".chart[data-x=step]").nth(1)  # the loss, which the news are about
    before = chart.get_attribute("data-x1")
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40, steps=4)
    news(job, 2, 1000)
    page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")
    expect(chart).not_to_have_attribute("data-x1", before)
    assert canvas.evaluate("canvas => canvas.isConnected"), "the plot was drawn again under the pointer"
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"zoom=\d+-\d+"))
    low, high = map(int, re.search(r"zoom=(\d+)-(\d+)", page.url).groups())
    length = end - begin
    assert abs(low - (begin + 0.25 * length)) <= 0.02 * length and abs(high - (begin + 0.5 * length)) <= 0.02 * length
