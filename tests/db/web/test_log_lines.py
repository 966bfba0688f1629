"""One line of a log: its address, its place among others, and its colours."""

import re

import pytest

from jobs.ingest import apply
from jobs.web.log_text import coloured
from tests.support import seed
from tests.support.builders import batch, identity, log_item

LINES = 700


@pytest.fixture
def long(lab):
    """A job whose rank 1 has printed hundreds of lines, and whose launcher one."""
    job = seed.running(lab, steps=2)
    at = 1_700_000_000.0
    items = [log_item(1, 2, [(at + n, f"line {n + 1} here") for n in range(2, LINES)])]
    items.append(log_item(-1, 0, [(at, "from the launcher")]))
    apply.apply_batch(identity=identity(job), batch=batch(2, *items))
    return job


def words(page: str) -> list[str]:
    return re.findall(r'<div class="l[^"]*">.*?<span>(.*?)</span></div>', page)


def here(page: str) -> list[str]:
    return re.findall(r'<div class="l[^"]* here">.*?<span>(.*?)</span></div>', page)


@pytest.mark.parametrize("page", ["/jobs/{}", "/jobs/{}/logs"])
def test_a_link_opens_the_log_at_its_line(owner, long, page):
    text = owner.get(f"{page.format(long.pk)}?rank=1&line=100").text
    assert here(text) == ["line 100 here"]
    assert words(text)[0] == "line 80 here" and "Line 100 and what is around it" in text
    assert 'href="?rank=1&amp;line=101"' in text


def test_a_line_of_the_launcher_has_an_address_too(owner, long):
    text = owner.get(f"/jobs/{long.pk}?rank=launcher&replica=worker-0").text
    assert 'href="?rank=launcher&amp;replica=worker-0&amp;line=1"' in text
    assert here(owner.get(f"/jobs/{long.pk}?rank=launcher&replica=worker-0&line=1").text) == ["from the launcher"]


def test_a_hit_leads_to_its_line(owner, long):
    found = owner.get(f"/jobs/{long.pk}/logs/find?q=line 345 ").text
    (link,) = re.findall(r'href="(\?rank=1&amp;line=345)"', found)
    assert here(owner.get(f"/jobs/{long.pk}{link.replace('&amp;', '&')}").text) == ["line 345 here"]


def test_the_first_line_is_one_click_away(owner, long):
    text = owner.get(f"/jobs/{long.pk}/logs?rank=1").text
    assert words(text)[0] != "step 0"
    (first,) = re.findall(r'<a class="btn small" href="([^"]+)"[^>]*>First line</a>', text)
    shown = words(owner.get(first.replace("&amp;", "&")).text)
    assert "line 3 here" in shown[:3] and len(shown) == 500


def test_the_address_of_the_page_keeps_line_and_search(owner, long, htmx):
    current = {"HTTP_HX_CURRENT_URL": f"http://testserver/jobs/{long.pk}?view=list&line=7", "HTTP_HX_REQUEST": "true"}
    found = owner.get(f"/jobs/{long.pk}/logs/find?rank=1&q=line 9", **current)
    assert found["HX-Replace-Url"] == f"/jobs/{long.pk}?view=list&q=line+9&rank=1"
    assert len(words(owner.get(found["HX-Replace-Url"]).text)) == 11
    at = owner.get(f"/jobs/{long.pk}/logs?rank=1&line=9", **current)
    assert at["HX-Replace-Url"] == f"/jobs/{long.pk}?view=list&line=9&rank=1"


@pytest.mark.parametrize("line", ["0", "x", "99999999999999", "-1", "2147483647"])
def test_a_line_that_does_not_exist_shows_no_error(owner, long, line):
    answer = owner.get(f"/jobs/{long.pk}?rank=1&line={line}")
    assert answer.status_code == 200 and here(answer.text) == []


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain <b>", "plain &lt;b&gt;"),
        ("\x1b[31mred\x1b[0m not", '<span class="a1">red</span> not'),
        ("\x1b[1;92mok\x1b[22m!\x1b[39m.", '<span class="a2 ab">ok</span><span class="a2">!</span>.'),
        ("\x1b[38;5;3myellow\x1b[38;2;1;2;3m other", '<span class="a3">yellow</span> other'),
        ("\x1b[3m\x1b[4mboth\x1b[m", '<span class="ai au">both</span>'),
        ("\x1b[41mground\x1b[0m", "ground"),
        ("\x1b]8;;http://evil\x07link\x1b[31m\x1b[2Jwiped", 'link<span class="a1">wiped</span>'),
        ("10 %\r\x1b[32m20 %\r", '<span class="a2">20 %</span>'),
        ('\x1b[31m"><script>', '<span class="a1">&quot;&gt;&lt;script&gt;</span>'),
        ("\x1b[;;31mx", '<span class="a1">x</span>'),
    ],
)
def test_colours_of_a_line(text, html):
    assert coloured(text) == html


def test_a_line_of_nothing_but_colours_is_bounded():
    assert coloured("\x1b[31mx" * 10_000).count("<span") <= 200


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("wandb: View run at https://wandb.ai/a/b/runs/x1?y=1&z=2", ["https://wandb.ai/a/b/runs/x1?y=1&amp;z=2"]),
        ("TensorBoard 2.20 at http://localhost:6006/ (Press CTRL+C)", ["http://localhost:6006/"]),
        (
            "see (https://a.example/b), or \x1b[4mhttps://c.example/d.\x1b[0m",
            ["https://a.example/b", "https://c.example/d"],
        ),
        ('javascript://alert(1) ftp://x.example "https://"', []),
        ('https://a.example/"onmouseover="alert(1)', ["https://a.example/"]),
        ("<https://a.example/<b>", ["https://a.example/"]),
    ],
)
def test_web_addresses_are_links(text, links):
    html = coloured(text)
    assert re.findall(r'<a href="([^"]*)" target="_blank" rel="noopener noreferrer nofollow">\1</a>', html) == links
    assert html.count("<a ") == len(links) and "<b>" not in html
