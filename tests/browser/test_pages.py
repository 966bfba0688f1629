"""Behavior that needs a browser: live updates without reloading, ten tabs at once, keys, folders, hovering."""

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from jobs.ingest import apply
from jobs.models import Job
from tests.browser.conftest import new_context, sign_in
from tests.support import seed
from tests.support.builders import batch, identity, item, log_item
from tests.support.patience import PATIENCE_SECONDS, until
from workspaces import reading

IS_LIVE = """(patience) => new Promise((done, fail) => {
    const end = Date.now() + patience;
    const look = () => {
        if (window.syncs > 0 && !document.querySelector(".htmx-request"))
            requestAnimationFrame(() => requestAnimationFrame(done));
        else if (Date.now() > end) fail(new Error("the stream says nothing"));
        else setTimeout(look, 50);
    };
    look();
})"""


def live(page):
    """Wait for the stream's first event and a redraw of the page: later changes arrive as hints."""
    page.evaluate(IS_LIVE, 1000 * PATIENCE_SECONDS)


def test_submit_a_folder_and_see_its_job(page, tmp_path):
    (tmp_path / "code" / "models").mkdir(parents=True)
    (tmp_path / "code" / "train.py").write_text("print('hello')")
    (tmp_path / "code" / "models" / "net.py").write_text("")
    page.click("text=Submit a job")
    page.wait_for_url("**/jobs/new")  # and its scripts: one of them handles the chosen files
    page.fill("[name=command]", "torchrun train.py")
    page.set_input_files("[data-folder]", tmp_path / "code")
    expect(page.locator("[data-chosen]")).to_contain_text("2 files")
    page.fill("[name=nodes]", "2")
    page.fill("[name=nproc_per_node]", "2")
    expect(page.locator("#shape")).to_contain_text("2 × 2 = 4 ranks")
    page.click("text=Show the plan")
    expect(page.locator("#plan")).to_contain_text("It would start now.")
    assert not Job.objects.exists()
    page.click("button:text-is('Submit')")
    expect(page.locator("h1")).to_contain_text("Queued")
    assert [one.path for one in reading.entries(Job.objects.get().workspace)] == ["models/net.py", "train.py"]


def test_the_form_shows_the_fields_of_the_chosen_framework_and_keeps_the_others(page):
    page.click("text=Submit a job")
    page.wait_for_url("**/jobs/new")
    page.fill("[name=command]", "python train.py")
    page.fill("[name=nodes]", "2")
    page.fill("[name=nproc_per_node]", "2")
    expect(page.locator("#shape")).to_contain_text("2 × 2 = 4 ranks")
    page.select_option("[name=framework]", "plain")
    expect(page.locator("[name=helper_command]")).to_be_visible()
    expect(page.locator("#shape")).to_contain_text("2 ranks")
    expect(page.locator("[name=command]")).to_have_value("python train.py")
    expect(page.locator("#per-node-label")).to_have_text("Devices per node")
    page.select_option("[name=framework]", "torchrun")
    expect(page.locator("#per-node-label")).to_have_text("Processes per node")
    expect(page.locator("[name=helper_command]")).to_have_count(0)
    page.select_option("[name=framework]", "plain")
    page.fill("[name=helper_command]", "python serve.py")
    page.locator("label").filter(has=page.locator("#code-none")).click()  # its circle is drawn by the label
    page.click("text=Show the plan")
    expect(page.locator("#plan")).to_contain_text("helper 1 replica")
    page.fill("[name=helper_command]", "python 'serve.py")
    page.click("text=Show the plan")
    expect(page.locator("#plan")).to_contain_text("Helper command cannot be split into words")
    page.fill("[name=helper_command]", "python serve.py")
    page.click("button:text-is('Submit')")
    expect(page.locator("h1")).to_contain_text("Queued")
    assert Job.objects.get().spec["options"] == {"helper_command": ["python", "serve.py"]}


def test_the_page_of_a_running_job_updates_without_reloading(page, lab):
    job = seed.running(lab, steps=20)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.evaluate("window.stayed = true")
    now = timezone.now().timestamp()
    items = [
        log_item(0, 20, [(now, "a fresh line")]),
        item("metrics", rank=0, points=[[now, 21, {"loss": 0.001}]]),
    ]
    apply.apply_batch(identity=identity(job), batch=batch(2, *items))
    expect(page.locator("#log-lines")).to_contain_text("a fresh line")
    expect(page.locator("#ranks .cell").first).to_contain_text("21")
    expect(page.locator(".read-out", has_text="0.001")).to_be_visible()
    assert page.evaluate("window.stayed") is True


def test_the_page_of_an_ended_job_shows_its_end_and_stops_refreshing(page, lab):
    job = seed.running(lab, steps=5)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    lab.finish(job, 0, 0)
    expect(page.locator("h1")).to_contain_text("Succeeded")
    expect(page.locator("[hx-trigger*='from:body']")).to_have_count(0)


def test_the_job_list_updates_while_it_is_open(page, lab):
    page.goto("/jobs")
    live(page)
    lab.submit(name="just-submitted")
    expect(page.locator("#jobs")).to_contain_text("just-submitted")


@pytest.mark.full
def test_ten_open_tabs_do_not_block_each_other(page, context, lab):
    job = seed.running(lab, steps=5)
    tabs = [context.new_page() for _ in range(10)]
    for tab in tabs:
        tab.goto(f"/jobs/{job.pk}")
    page.goto("/queues")  # would hang if the tabs held all six connections
    live(page)
    apply.apply_batch(
        identity=identity(job), batch=batch(2, log_item(0, 5, [(timezone.now().timestamp(), "for everyone")]))
    )
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.locator("#log-lines")).to_contain_text("for everyone")


def test_cancel_asks_first_and_keeps_the_page(page, lab):
    job = seed.running(lab, steps=5)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.click("summary:has-text('Cancel')")
    page.click("button:text-is('Cancel the job')")
    expect(page.locator("h1")).to_contain_text("cancel requested")


def test_an_open_confirmation_stays_open_while_the_page_refreshes(page, lab):
    job = seed.running(lab, steps=5)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    page.click("#history summary")
    page.click("summary:has-text('Cancel')")
    page.evaluate("document.body.dispatchEvent(new Event('live-sync'))")
    page.wait_for_timeout(1000)
    expect(page.locator("#confirm-cancel")).to_have_attribute("open", "")
    expect(page.locator("#history")).to_have_attribute("open", "")


def test_scrolling_back_in_the_log_is_not_interrupted_by_new_lines(page, lab):
    job = seed.running(lab, steps=60)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    pane = page.locator("#log-lines")
    pane.evaluate("box => { box.scrollTop = 0 }")
    expect(page.locator("[data-log-follow]")).to_have_text("Follow")
    apply.apply_batch(
        identity=identity(job), batch=batch(2, log_item(0, 60, [(timezone.now().timestamp(), "much later")]))
    )
    expect(page.locator("[data-log-newer]")).to_contain_text("1 new line")
    assert pane.evaluate("box => box.scrollTop") == 0
    page.click("[data-log-newer]")
    expect(page.locator("[data-log-follow]")).to_have_text("Following")


def test_following_skips_a_burst_whose_lines_can_be_read_later(page, lab):
    job = seed.running(lab, steps=5)
    page.goto(f"/jobs/{job.pk}/logs?rank=0")
    live(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "cursor=" in request.url else None)
    now = timezone.now().timestamp()
    burst = log_item(0, 5, [(now, f"fast line {number}") for number in range(9000)])
    apply.apply_batch(identity=identity(job), batch=batch(2, burst))
    expect(page.locator("#log-lines .l").last).to_contain_text("fast line 8999")
    assert len(asked) == 1, "one answer is enough to be at the end"
    expect(page.locator(".l.skipped")).to_contain_text("8,500 lines skipped")
    expect(page.locator("[data-log-follow]")).to_have_text("Following")
    page.click(".l.skipped a")
    expect(page.locator("#log-lines .l").first).to_contain_text("fast line 0")
    expect(page.locator(".found-head")).to_contain_text("500 lines")
    page.click("text=Read on")
    expect(page.locator("#log-lines .l").first).to_contain_text("fast line 500")
    page.click("text=Back to the end")
    expect(page.locator("[data-log-follow]")).to_have_text("Following")


def test_the_log_can_be_searched_and_narrowed_to_a_rank(page, lab):
    job = seed.running(lab, steps=12)
    page.goto(f"/jobs/{job.pk}")
    page.fill("[data-log-filter]", "step 12 ")
    expect(page.locator("#log-lines .l:visible")).to_have_count(4)
    page.locator(".rank-links a", has_text="3").click()
    expect(page.locator("#log-lines .l")).to_have_count(12)


def test_a_click_on_a_rank_shows_its_log_and_marks_it(page, lab):
    job = seed.running(lab, steps=12)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"/jobs/{job.pk}")
    page.locator("#ranks .cell[href$='rank=3']").click()
    expect(page.locator("#log-lines .l")).to_have_count(12)
    expect(page.locator("#log-lines")).to_be_in_viewport(ratio=0.9)
    expect(page).to_have_url(re.compile(r"\?rank=3$"))
    expect(page.locator("#ranks .cell[aria-current]")).to_have_count(1)
    expect(page.locator("#ranks .cell[aria-current]")).to_be_in_viewport()
    page.reload()
    expect(page.locator("#log-choices [aria-current]")).to_have_text("3")
    expect(page.locator("#ranks .cell[aria-current] .n")).to_have_text("3")


def test_keys_and_theme(page, lab):
    page.goto("/jobs")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("[data-theme-toggle]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_hovering_over_a_chart_shows_its_values(page, lab):
    job = seed.running(lab, steps=50)
    page.goto(f"/jobs/{job.pk}")
    page.locator(".plot .u-over").first.hover()
    expect(page.locator(".read-out").first).to_contain_text("at step")


def test_nothing_is_wider_than_the_window(page, lab):
    job = seed.running(lab, steps=5)
    seed.queued(lab, name="x" * 40)
    for url in ("/", "/jobs", "/queues", "/queues/default", "/jobs/new", f"/jobs/{job.pk}"):
        page.goto(url)
        for width in (375, 640, 641, 820, 821, 870, 920, 921, 1024, 1100, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (url, width)


def test_every_page_works_without_javascript(chromium, site, lab):
    job = seed.running(lab, steps=5)
    context = new_context(chromium, site, java_script_enabled=False)
    page = context.new_page()
    sign_in(page)
    page.goto(f"/jobs/{job.pk}")
    expect(page.locator(".chart polyline").first).to_be_visible()
    page.locator(".rank-links a", has_text="3").click()
    expect(page.locator("#log-lines .l")).to_have_count(5)
    page.goto(f"/jobs/{job.pk}")
    page.click("summary:has-text('Cancel')")
    page.click("button:text-is('Cancel the job')")
    expect(page.locator("h1")).to_contain_text("cancel requested")
    context.close()


def test_a_link_to_a_line_brings_it_into_view(page, lab):
    job = seed.running(lab, steps=300)
    page.goto(f"/jobs/{job.pk}?rank=2&line=150")
    expect(page.locator(".l.here")).to_be_in_viewport()
    assert page.locator(".l.here").count() == 1
    page.locator(".l.here time").hover()
    expect(page.locator(".l.here time")).to_have_attribute("title", re.compile(r"\d{3} ms"))
    page.locator(".l", has_text=re.compile("step 140 ")).locator("a").first.click()
    page.wait_for_url("**line=140*")
    expect(page.locator(".l.here")).to_be_in_viewport()


def in_view(page, selector: str) -> bool:
    """Whether the middle of an element is what lies there in the window, and nothing else covers it."""
    return page.evaluate(
        """(selector) => {
            const {left, top, width, height} = document.querySelector(selector).getBoundingClientRect();
            const found = document.elementFromPoint(left + Math.min(width, innerWidth) / 2, top + height / 2);
            return Boolean(found?.closest(selector));
        }""",
        selector,
    )


def test_the_log_of_a_failed_job_comes_into_view_from_the_verdict_and_from_a_link(page, lab):
    job = seed.failed(lab)
    page.set_viewport_size({"width": 1440, "height": 700})
    page.goto(f"/jobs/{job.pk}")
    assert not in_view(page, "#log-lines"), "the verdict is above it"
    page.click("text=Read the log of rank")
    until(lambda: in_view(page, "#log-lines"), page.url)
    page.goto(f"/jobs/{job.pk}?rank=1&line=1")
    until(lambda: in_view(page, ".l.here"), page.url)


def test_on_a_narrow_page_a_click_on_a_rank_scrolls_to_its_log(page, lab):
    job = seed.running(lab, steps=12)
    page.set_viewport_size({"width": 900, "height": 600})
    page.goto(f"/jobs/{job.pk}")
    page.locator("#rank-3").click()
    expect(page.locator("#log-lines .l")).to_have_count(12)
    expect(page.locator("#log-lines")).to_be_in_viewport(ratio=0.9)


def test_the_divider_is_moved_by_keys_and_pointer_and_stays(page, lab):
    job = seed.running(lab, steps=2)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"/jobs/{job.pk}")
    width = "document.getElementById('ranks').getBoundingClientRect().width"
    usual = page.evaluate(width)
    divider = page.locator(".divider")
    divider.focus()
    page.keyboard.press("ArrowLeft")
    smaller = page.evaluate(width)
    assert smaller < usual
    box = divider.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 202, box["y"] + 100)
    page.mouse.up()
    wider = page.evaluate(width)
    assert wider > smaller + 150
    page.reload()
    assert abs(page.evaluate(width) - wider) < 2


def test_typing_into_the_log_filter_keeps_the_place(page, lab):
    job = seed.running(lab, steps=300)
    page.goto(f"/jobs/{job.pk}/logs?rank=0")
    page.locator("#log-lines").evaluate("box => { box.scrollTop = 1000; box.dispatchEvent(new Event('scroll')) }")
    top = "() => { const box = document.getElementById('log-lines'); return [...box.querySelectorAll('.l:not([hidden])')].find((l) => l.offsetTop + l.offsetHeight - box.offsetTop > box.scrollTop).textContent }"
    before = page.evaluate(top)
    page.fill("[data-log-filter]", "0 ")
    assert page.locator(".l[hidden]").count() > 100
    page.fill("[data-log-filter]", "")
    assert page.locator(".l[hidden]").count() == 0 and page.evaluate(top) == before


def test_a_page_whose_hint_was_lost_finds_out_by_looking(page, lab):
    """The process that ended the job died before it said so: once a minute the ranks are asked for all the same."""
    job = seed.running(lab, steps=5)
    page.goto(f"/jobs/{job.pk}")
    live(page)
    Job.objects.filter(pk=job.pk).update(
        phase="succeeded", finished_at=timezone.now(), phase_since=timezone.now(), message="all replicas succeeded"
    )
    page.evaluate("document.body.dispatchEvent(new Event('live-check'))")
    expect(page.locator("h1")).to_contain_text("Succeeded")
    expect(page.locator("#charts")).not_to_have_attribute("hx-get", re.compile("."))


@pytest.fixture
def own_stream(chromium, site, page):
    """A page with a stream of its own, as in a browser without shared workers, and with its timers."""
    context = chromium.new_context(base_url=site.url, storage_state=page.context.storage_state())
    context.add_init_script("delete window.SharedWorker")
    yield context.new_page()
    context.close()


def test_a_page_polls_while_its_stream_is_away(own_stream, lab):
    job = seed.running(lab, steps=5)
    own_stream.context.route("**/live", lambda route: route.abort())
    tab = own_stream
    tab.clock.install()
    tab.goto(f"/jobs/{job.pk}")
    with tab.expect_request(lambda request: request.headers.get("hx-target", "").endswith("#state")):
        tab.clock.run_for(61_000)


def test_a_page_opens_another_stream_when_its_own_falls_silent(own_stream, lab):
    """A connection may die without a word; here the page's clock says that the last beat was long ago."""
    job = seed.running(lab, steps=5)
    tab = own_stream
    tab.clock.install()
    # It has heard from its stream once it asks for its parts: only then does a silence begin.
    with tab.expect_request(lambda request: request.headers.get("hx-request") == "true"):
        tab.goto(f"/jobs/{job.pk}")
    with tab.expect_request("**/live"):
        tab.clock.run_for(61_000)


def test_a_page_whose_stream_ended_after_it_spoke_polls_too(own_stream, lab):
    job = seed.running(lab, steps=5)
    spoken = []

    def once(route):
        if spoken:
            return route.abort()
        spoken.append(True)
        return route.fulfill(content_type="text/event-stream", body="event: sync\ndata: {}\n\n")

    own_stream.context.route("**/live", once)
    tab = own_stream
    tab.clock.install()
    tab.goto(f"/jobs/{job.pk}")
    tab.clock.run_for(3_000)  # what the sync asked for is over
    with tab.expect_request(lambda request: request.headers.get("hx-target", "").endswith("#state")):
        tab.clock.run_for(61_000)
    assert spoken
