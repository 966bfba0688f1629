"""Which cells of the rank matrix are visible at which width, measured in a real browser."""

import pytest
from django.utils import timezone

from jobs.models import Rank
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


@pytest.mark.parametrize("width", [1920, 1440, 1100])
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
    assert len(set(tops)) == 2, "one line for each replica"


@pytest.mark.parametrize("nodes", [2, 8, 128])
def test_every_failed_rank_is_visible(page, lab, nodes):
    job = job_of(lab, nodes)
    failed = [7, 8 * nodes - 1, 4 * nodes + 5]
    for number in failed:
        Rank.objects.filter(job=job, rank=number).update(state="failed", exit_code=1, ended_at=timezone.now())
    page.goto(f"/jobs/{job.pk}")
    live(page)
    for width in (1440, 1100, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.locator("#ranks .cell.bad").count() == len(failed)
        assert page.evaluate(CLIPPED, "#ranks .cell.bad") == [], width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
