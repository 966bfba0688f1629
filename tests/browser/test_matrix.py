"""Which cells of the rank matrix are visible at which width, measured in a real browser."""

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from jobs.models import Rank
from jobs.web.detail import MAP_ABOVE
from tests.browser.test_pages import live

# Cells that lie, wholly or in part, outside of the page's width or of a scrolling box.
CLIPPED = """(which) => [...document.querySelectorAll(which)].filter((cell) => {
    const it = cell.getBoundingClientRect();
    if (it.left < -1 || it.right > document.documentElement.clientWidth + 1) return true;
    for (let box = cell.parentElement; box && box !== document.body; box = box.parentElement) {
        if (getComputedStyle(box).overflowX === "visible" && getComputedStyle(box).overflowY === "visible") continue;
        const around = box.getBoundingClientRect();
        if (it.left < around.left - 1 || it.right > around.right + 1) return true;
        if (it.top < around.top - 1 || it.bottom > around.bottom + 1) return true;
    }
    return false;
}).map((cell) => cell.title)"""


def job_of(lab, nodes: int):
    lab.queue.nominal = 8 * nodes
    lab.queue.save()
    job = lab.running(nodes=nodes, nproc_per_node=8)
    Rank.objects.filter(job=job).update(state="running", step=12_000, started_at=timezone.now())
    job.replicas.update(node="gpu-node-with-a-long-name-07.example")
    return job


@pytest.mark.parametrize(
    "width", [pytest.param(1920, marks=pytest.mark.full), 1440, pytest.param(1100, marks=pytest.mark.full)]
)
def test_eight_local_ranks_fit_side_by_side(page, lab, width):
    job = job_of(lab, 2)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/jobs/{job.pk}")
    live(page)
    assert page.locator("#ranks .cell").count() == 16
    assert page.evaluate(CLIPPED, "#ranks .cell") == []
    tops = page.eval_on_selector_all(
        "#ranks .cell", "all => all.map((one) => Math.round(one.getBoundingClientRect().top))"
    )
    assert len(set(tops)) <= (2 if width > 1100 else 4), (
        "one line for each replica, two where the log is beside a narrow column"
    )


@pytest.mark.parametrize(
    "nodes", [pytest.param(2, marks=pytest.mark.full), 8, pytest.param(128, marks=pytest.mark.full)]
)
def test_every_failed_rank_is_visible(page, lab, nodes):
    job = job_of(lab, nodes)
    failed = [7, 8 * nodes - 1, 4 * nodes + 5]
    for number in failed:
        Rank.objects.filter(job=job, rank=number).update(state="failed", exit_code=1, ended_at=timezone.now())
    page.goto(f"/jobs/{job.pk}")
    live(page)
    for width in (1440, 1100, 390):
        page.set_viewport_size({"width": width, "height": 900})
        which = "#ranks .needs li.bad" if 8 * nodes > MAP_ABOVE else "#ranks .cell.bad"
        assert page.locator(which).count() == len(failed)
        assert page.evaluate(CLIPPED, which) == [], width
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_rank_of_a_large_job_is_found_by_pointer_and_by_keys(page, lab):
    job = job_of(lab, 128)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"/jobs/{job.pk}")
    live(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    spots = page.locator("svg.map")
    box = spots.bounding_box()
    assert box["y"] + box["height"] <= 900, "all ranks are in view at once"
    spots.focus()
    page.keyboard.press("End")
    expect(page.locator("#map-tip")).to_have_text("rank 1023 on worker-127")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("rank=1022"))
    # Where the cursor stands is where the pointer finds the same rank.
    at = page.locator("svg.map .at").bounding_box()
    page.keyboard.press("Home")
    expect(page.locator("#map-tip")).to_have_text("rank 0 on worker-0")
    page.mouse.click(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    expect(page.locator("#map-tip")).to_have_text("rank 1022 on worker-127")
    expect(page.locator("#log")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "map-worker"
