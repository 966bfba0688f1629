"""/jobs/<id>/logs"""

import html
import re

import pytest
from django.utils import timezone

from jobs.ingest import apply
from tests.support import seed
from tests.support.builders import batch, identity, item, log_item


def lines(page: str) -> list[str]:
    return re.findall(r'<div class="l[^"]*">.*?<span>(.*?)</span></div>', page)


def tail(page: str) -> str:
    found = re.search(r'id="log-tail" data-empty="[^"]*" hx-get="([^"]+)"', page)
    return found[1].replace("&amp;", "&") if found else ""


def test_all_ranks_are_merged_or_one_is_shown(owner, job):
    assert len(lines(owner.get(f"/jobs/{job.pk}/logs").text)) == 80
    assert len(lines(owner.get(f"/jobs/{job.pk}/logs?rank=3").text)) == 20


def test_following_returns_only_new_lines_and_a_new_cursor(owner, job, htmx):
    url = tail(owner.get(f"/jobs/{job.pk}/logs").text)
    assert lines(htmx(owner, url, "log-tail").text) == []
    now = timezone.now().timestamp()
    apply.apply_batch(identity=identity(job), batch=batch(2, log_item(0, 20, [(now, "fresh words")])))
    answer = htmx(owner, url, "log-tail").text
    assert lines(answer) == ["fresh words"]
    assert tail(answer) not in ("", url)


def test_following_ends_with_the_last_lines_of_a_finished_job(owner, lab, job, htmx):
    url = tail(owner.get(f"/jobs/{job.pk}/logs").text)
    lab.finish(job, 0, 0)
    answer = htmx(owner, url, "log-tail").text
    assert tail(answer) == ""
    assert "end of log" in answer


def test_a_gap_is_shown_as_a_gap(owner, job):
    gap = item("gap", rank=0, first_line=20, lines=9000, raw_bytes=812331, first_at=1.0, last_at=2.0)
    apply.apply_batch(identity=identity(job), batch=batch(2, gap))
    assert 'class="l gap"' in owner.get(f"/jobs/{job.pk}/logs?rank=0").text


def test_colours_become_classes_and_markup_is_escaped(owner, lab):
    job = seed.running(lab, steps=1)
    now = timezone.now().timestamp()
    apply.apply_batch(
        identity=identity(job), batch=batch(2, log_item(0, 1, [(now, "\x1b[1;31mRuntimeError: <b>no</b>\x1b[0m")]))
    )
    page = owner.get(f"/jobs/{job.pk}/logs?rank=0").text
    assert '<span><span class="a1 ab">RuntimeError: &lt;b&gt;no&lt;/b&gt;</span></span>' in page
    assert "\x1b" not in page


@pytest.mark.parametrize(
    "line",
    ["<&'\"" * 2000, "".join(f"\x1b[{30 + n % 8}m<" for n in range(2000)), "https://a.example/ " * 500, "x" * 8000],
)
def test_a_page_stays_small_whatever_a_job_prints(owner, lab, line):
    job, now = seed.running(lab, steps=1), timezone.now().timestamp()
    text = [(now + n / 1000, f"{n:03d} {line}") for n in range(500)]
    for part in range(5):
        lines = text[100 * part : 100 * part + 100]
        apply.apply_batch(identity=identity(job), batch=batch(2 + part, log_item(0, 1 + 100 * part, lines)))
    page = owner.get(f"/jobs/{job.pk}").content
    assert len(page) < 2_000_000
    assert b"more characters, which the log&#x27;s text has" in page and b"499 " in page
    assert len(owner.get(f"/jobs/{job.pk}/logs/find?q=4").content) < 2_000_000


def test_a_long_line_among_short_ones_is_whole(owner, lab):
    job, now = seed.running(lab, steps=1), timezone.now().timestamp()
    lines = [(now, "short")] * 90 + [(now, "begin" + "x" * 50_000 + "end")]
    apply.apply_batch(identity=identity(job), batch=batch(2, log_item(0, 1, lines)))
    assert "xend" in owner.get(f"/jobs/{job.pk}/logs?rank=0").text


def test_the_download_has_every_line_with_time_and_rank(owner, job):
    answer = owner.get(f"/jobs/{job.pk}/logs.txt")
    text = b"".join(answer.streaming_content).decode()
    assert text.count("\n") == 80
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z +rank \d  step 1 ", text)
    assert answer["Content-Disposition"] == 'attachment; filename="mnist-ddp-1-all.txt"'


def test_an_invalid_cursor_starts_at_the_end_again(owner, job, htmx):
    assert len(lines(htmx(owner, f"/jobs/{job.pk}/logs?cursor=garbage", "log-tail").text)) == 80


def test_log_and_history_say_that_their_times_are_in_utc(owner, job):
    page = owner.get(f"/jobs/{job.pk}").text
    assert re.search(r'id="log-title">Log</h2><span class="faint" title="[^"]+">UTC</span>', page)
    assert re.search(r"<h2>History</h2>.*; times in UTC</span>", page)
    first = re.search(r'href="([^"]+)"[^>]*title="Read from the first line"', page)
    assert re.search(r"</b> from \d\d:\d\d:\d\d UTC on", owner.get(html.unescape(first[1])).text)


def test_a_job_without_lines_shows_a_message(owner, lab):
    assert "Nothing printed yet" in owner.get(f"/jobs/{lab.submit().pk}/logs").text


def test_the_whole_log_is_searched_not_only_the_lines_shown(owner, job, htmx):
    page = owner.get(f"/jobs/{job.pk}/logs/find?q=STEP").text
    assert 'class="found-head"' in page
    assert lines(page)
    assert all("step" in line.lower() for line in lines(page))
    assert len(lines(owner.get(f"/jobs/{job.pk}/logs/find?q=step&rank=1").text)) < len(lines(page))
    part = htmx(owner, f"/jobs/{job.pk}/logs/find?q=step", "log").text
    assert part.startswith('<section id="log"')
    assert "Back to the log" in part


def test_a_search_without_matches_says_so_and_escapes_the_query(owner, job):
    page = owner.get(f"/jobs/{job.pk}/logs/find?q=%3Cb%3Enope").text
    assert "No line with “&lt;b&gt;nope”" in page
    assert owner.get(f"/jobs/{job.pk}/logs/find?q=").status_code == 200
    assert owner.get(f"/jobs/{job.pk}/logs/find?q=step&start=rubbish").status_code == 200


@pytest.mark.parametrize("path", ["logs", "logs/find", "logs.txt"])
@pytest.mark.parametrize("rank", [2**31, 10**16, 10**30])
def test_a_rank_out_of_range_is_ignored(owner, job, path, rank):
    answer = owner.get(f"/jobs/{job.pk}/{path}?q=step&rank={rank}")
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    assert answer.status_code == 200 and b"step" in content


def choices(page: str) -> list[str]:
    found = re.search(r'aria-label="Whose log"[^>]*>(.*?)</nav>', page, re.S)
    return re.findall(r">([^<]+)</a>", found[1]) if found else []


def chosen(page: str) -> list[str]:
    return re.findall(r'aria-current="true">([^<]+)</a>', re.search(r'id="log-choices".*?</nav>', page, re.S)[0])


def test_a_job_that_waits_already_offers_the_logs_of_its_ranks(owner, lab):
    assert choices(owner.get(f"/jobs/{lab.submit().pk}").text) == ["All", "0", "1", "2", "3", "Launcher"]


def test_ranks_that_nobody_planned_are_offered_once_they_are_there(owner, lab, htmx):
    job = lab.running(framework="ray", command="python3 driver.py", nodes=1, nproc_per_node=2)
    page = owner.get(f"/jobs/{job.pk}").text
    assert choices(page) == ["All", "head-0", "worker-0"]
    url = re.search(r'id="log-choices"[^>]* hx-get="([^"]+)"', page)[1].replace("&amp;", "&")
    assert htmx(owner, url, "log-choices").status_code == 204
    running = item("rank", rank=0, local_rank=0, state="running", at=timezone.now().timestamp())
    apply.apply_batch(identity=identity(job), batch=batch(1, running))
    answer = htmx(owner, url, "log-choices").text
    assert choices(answer) == ["All", "head-0", "worker-0", "0"] and "log-lines" not in answer


def test_a_failed_job_opens_at_the_log_of_the_rank_that_failed(owner, lab):
    job = lab.running()
    now = timezone.now().timestamp()
    error = {
        "traceback": 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nValueError: label 17'
    }
    told = [
        log_item(2, 0, [(now, "ValueError: label 17")]), log_item(-1, 0, [(now + 1, "torchrun's own report")]),
        item("rank", rank=2, state="failed", exit_code=1, at=now, error=error, error_at=now),
    ]  # fmt: skip
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, *told))
    assert chosen(owner.get(f"/jobs/{job.pk}").text) == ["All"]
    lab.finish(job, 0, 1)
    page = owner.get(f"/jobs/{job.pk}").text
    assert (chosen(page), lines(page)) == (["2"], ["ValueError: label 17"])
    assert lines(owner.get(f"/jobs/{job.pk}?rank=launcher").text) == ["torchrun&#x27;s own report"]
    assert len(lines(owner.get(f"/jobs/{job.pk}/logs").text)) == 2


def test_the_address_of_the_page_says_whose_log_is_open(owner, job):
    def clicked(url: str, page: str) -> str | None:
        headers = {"HX-Request": "true", "HX-Target": "log", "HX-Current-URL": f"http://testserver{page}"}
        return owner.get(url, headers=headers).headers.get("HX-Replace-Url")

    page = f"/jobs/{job.pk}"
    assert clicked(f"{page}/logs?rank=3", page) == f"{page}?rank=3"
    assert clicked(f"{page}/logs?replica=worker-1", f"{page}?view=list&rank=3") == f"{page}?view=list&replica=worker-1"
    assert clicked(f"{page}/logs", f"{page}?rank=3") == page
    assert clicked(f"{page}/logs?rank=3", f"{page}/logs") is None
    assert chosen(owner.get(f"{page}?rank=3").text) == ["3"]
