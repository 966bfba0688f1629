"""Live updates change a page in place: focus, selected text and open menus stay where they are."""

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from jobs.ingest import apply
from tests.browser.test_pages import live
from tests.support import seed
from tests.support.builders import batch, identity, item, log_item

CONTROLS = "main a[href], main button, main input, main select, main summary, main [tabindex='0']"
# Each visible control in turn: focus it, refresh every live part of the page, and compare.
LOSES_FOCUS = """async (controls) => {
    const settled = () => new Promise((done) => {
        const look = () => document.querySelector(".htmx-request") ? setTimeout(look, 10) : setTimeout(done, 30);
        setTimeout(look, 30);
    });
    const name = (node) => `${node.tagName} ${node.id || node.textContent.trim().slice(0, 30) || node.name}`;
    const lost = [];
    let tried = 0;
    for (const node of document.querySelectorAll(controls)) {
        if (!node.checkVisibility() || node.disabled || !node.isConnected) continue;
        node.focus();
        if (document.activeElement !== node) continue;
        tried += 1;
        document.body.dispatchEvent(new Event("live-sync"));
        document.body.dispatchEvent(new Event("jobs-changed"));
        await settled();
        if (document.activeElement !== node) lost.push(name(node));
    }
    return [tried, lost];
}"""


def news(job, seq: int, step: int) -> None:
    """New lines, a step and a value for each rank."""
    now = timezone.now().timestamp()
    items = [
        log_item(0, step, [(now, f"line {step}")]),
        item("metrics", rank=0, points=[[now, step, {"loss": 1 / step}]]),
    ]
    apply.apply_batch(identity=identity(job), batch=batch(seq, *items))


OF_RANKS = "#ranks a[href], #ranks button, #ranks input, #ranks select, #ranks summary"  # all else is alike in the list


@pytest.mark.parametrize(
    ("query", "controls", "least"),
    [pytest.param("", CONTROLS, 15, marks=pytest.mark.full), ("?view=list", OF_RANKS, 4)],
)
def test_every_control_of_a_jobs_page_keeps_the_focus(page, lab, query, controls, least):
    job = seed.running(lab, steps=20)
    page.goto(f"/jobs/{job.pk}{query}")
    live(page)
    news(job, 2, 21)
    tried, lost = page.evaluate(LOSES_FOCUS, controls)
    assert lost == [] and tried > least


@pytest.mark.parametrize("path", ["/jobs", "/queues"])
def test_every_control_of_a_list_keeps_the_focus(page, lab, path):
    seed.running(lab, steps=2)
    for _ in range(2):
        lab.submit(nodes=1, nproc_per_node=1)
    page.goto(path)
    live(page)
    tried, lost = page.evaluate(LOSES_FOCUS, CONTROLS)
    assert lost == [] and tried > 2


def test_a_focused_row_keeps_the_focus_when_another_job_appears_above_it(page, lab):
    first = seed.running(lab, steps=2)
    page.goto("/jobs")
    live(page)
    page.locator(f"#job-{first.pk} a.cover").focus()
    second = lab.submit(nodes=1, nproc_per_node=1)
    page.locator(f"#job-{second.pk}").wait_for()
    assert page.evaluate("document.activeElement.closest('tr').id") == f"job-{first.pk}"


def test_selected_text_and_an_open_menu_survive_updates(page, lab):
    job = seed.running(lab, steps=20)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#ranks-title'))")
    page.locator("details.confirm summary").first.click()
    for seq, step in enumerate((21, 22, 23), start=2):
        news(job, seq, step)
        page.locator("#ranks .cell .step", has_text=str(step)).first.wait_for()
    assert page.evaluate("getSelection().toString()") in ("Ranks", "")  # a click elsewhere may end it
    assert page.locator("details.confirm").first.get_attribute("open") is not None


def test_a_ranks_cell_keeps_the_focus_when_another_rank_fails_and_moves_up(page, lab):
    job = seed.running(lab, steps=20)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.locator("#rank-0").focus()
    now = timezone.now().timestamp()
    failed = item("rank", rank=3, local_rank=1, state="failed", at=now, exit_code=1)
    apply.apply_batch(identity=identity(job, 1), batch=batch(2, failed))
    page.locator("#rank-3.bad").wait_for()
    assert page.evaluate("document.activeElement.id") == "rank-0"


@pytest.mark.parametrize("slow", [1, pytest.param(2, marks=pytest.mark.full)])
def test_of_two_clicks_the_later_one_counts_whichever_is_answered_first(page, lab, slow):
    job = seed.running(lab, steps=5)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    held = []
    page.route(f"**/logs?rank={slow}", lambda route: held.append(route))
    page.locator("#rank-1").click()
    page.locator("#rank-2").click()
    quick = 3 - slow
    if quick == 2:
        expect(page.locator("#log-choices [aria-current]")).to_have_text("2")
    else:
        page.wait_for_function("() => !document.querySelector('#rank-1.htmx-request')")
    held[0].continue_()
    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    expect(page.locator("#log-choices [aria-current]")).to_have_text("2")
    expect(page.locator("#log-lines .l b").first).to_have_text("2")
    assert page.url.endswith("rank=2") and page.locator("#ranks .cell[aria-current]").get_attribute("id") == "rank-2"


def test_an_answer_finds_its_place_although_another_one_replaced_it(page, lab):
    page.click("text=Submit a job")
    page.wait_for_url("**/jobs/new")
    page.fill("[name=command]", "python train.py")
    held = []
    page.route("**/jobs/new?*nodes=2*", lambda route: held.append(route))
    page.fill("[name=nodes]", "2")
    page.wait_for_function("() => !!document.querySelector('.htmx-request')")
    page.fill("[name=nodes]", "3")  # waits in line behind the first
    page.wait_for_timeout(400)
    held[0].continue_()
    expect(page.locator("#shape")).to_contain_text("3 × ")
