"""A follower of a log stays at the end: lines that it could not read in time are skipped, with a notice and a link."""

import asyncio
import base64
import json
import random
import re
import zlib
from contextlib import asynccontextmanager

import pytest
from django.conf import settings
from django.utils import timezone

from accounts.access import Access
from accounts.models import Token
from common.errors import InvalidInput
from common.signals import hints
from controlplane import live
from jobs.api import log_stream
from jobs.core import cursor
from jobs.core.cursor import Cursor, decode
from jobs.ingest import apply
from jobs.logs import reader
from tests.db.web.test_log_pane import lines, tail
from tests.support.builders import batch, identity, log_item


def burst(job, seq: int, count: int, *, first: int, rank: int = 0, index: int = 0, text: str = "line {}") -> None:
    now = timezone.now().timestamp()
    some = [(now, text.format(number)) for number in range(first, first + count)]
    apply.apply_batch(identity=identity(job, index), batch=batch(seq, log_item(rank, first, some)))


def skipped(page: str) -> tuple[str, str]:
    """The notice about skipped lines, and the target of its link."""
    found = re.search(r'<div class="l skipped"><span>(.*?)</span><a href="([^"]+)"', page)
    return (found[1], found[2].replace("&amp;", "&")) if found else ("", "")


@pytest.fixture
def place(owner, lab):
    """A running job with one line, and the URL from which a follower continues."""
    job = lab.running()
    burst(job, 1, 1, first=0)
    return job, tail(owner.get(f"/jobs/{job.pk}/logs").text)


def test_a_follower_is_at_the_end_after_one_answer_however_many_lines_arrived(owner, htmx, place):
    job, url = place
    for number in range(13):
        burst(job, 2 + number, 1000, first=1 + 1000 * number)
    page = htmx(owner, url, "log-tail").text
    assert lines(page)[-1] == "line 13000"
    assert len(lines(page)) == 500
    assert skipped(page)[0] == "12,500 lines skipped"
    again = htmx(owner, tail(page), "log-tail").text
    assert (lines(again), skipped(again)) == ([], ("", ""))


def test_skipped_lines_can_be_read_from_the_first(owner, htmx, place):
    job, url = place
    burst(job, 2, 1400, first=1)
    where = skipped(htmx(owner, url, "log-tail").text)[1]
    page, seen = owner.get(where).text, []
    while lines(page):
        seen += lines(page)
        assert "Back to the end" in page
        assert tail(page) == "", "a page that is read does not move"
        on = re.search(r'<a href="([^"]+)"[^>]*>Read on</a>', page)
        if not on:
            break
        page = owner.get(on[1].replace("&amp;", "&")).text
    assert seen == [f"line {number}" for number in range(1, 1401)]
    assert htmx(owner, where, "log").text.startswith('<section id="log"')


def test_the_last_lines_of_ranks_that_print_little_are_shown(owner, htmx, place):
    job, url = place
    burst(job, 2, 3000, first=1)
    burst(job, 1, 1, first=0, rank=2, index=1, text="rank two says {}")
    page = htmx(owner, url, "log-tail").text
    assert "rank two says 0" in lines(page)
    assert skipped(page)[0] == "2,501 lines skipped"


def test_with_one_rank_only_its_own_lines_count_as_skipped(owner, htmx, place):
    job, _ = place
    url = tail(owner.get(f"/jobs/{job.pk}/logs?rank=0").text)
    burst(job, 2, 700, first=1)
    burst(job, 1, 900, first=0, rank=2, index=1)
    words, where = skipped(htmx(owner, url, "log-tail").text)
    assert words == "200 lines skipped"
    assert "rank=0&" in where


def test_there_is_no_notice_when_nothing_is_skipped(owner, htmx, place):
    job, url = place
    burst(job, 2, 500, first=1)
    page = htmx(owner, url, "log-tail").text
    assert (len(lines(page)), skipped(page)) == (500, ("", ""))


def test_the_next_attempt_follows_the_end_of_the_previous_one(owner, htmx, lab):
    job = lab.running(max_retries=1)
    burst(job, 1, 1, first=0)
    url = tail(owner.get(f"/jobs/{job.pk}/logs").text)
    burst(job, 2, 600, first=1)
    job = lab.finish(job, 1, 1)
    assert job.attempt == 2
    burst(job, 1, 2, first=0, text="again {}")
    page = htmx(owner, url, "log-tail").text
    assert lines(page)[-3:] == ["line 600", "again 0", "again 1"]
    assert skipped(page)[0] == "100 lines skipped"


def test_lines_beyond_the_byte_limit_of_a_page_are_skipped_too(owner, htmx, place):
    job, url = place
    for number in range(4):
        burst(job, 2 + number, 4, first=1 + 4 * number, text="{} " + "x" * 700_000)
    page = htmx(owner, url, "log-tail").text
    assert lines(page)[-1].startswith("16 x")
    shown = len(lines(page))
    assert skipped(page)[0] == f"{16 - shown} lines skipped"


def test_the_page_is_at_most_two_seconds_behind():
    """The delays are the gathering of hints and the page's pause; a second remains for the answer."""
    script = (settings.BASE_DIR / "static/live.js").read_text()
    pause = int(re.search(r"GAPS = \{[^}]*\blogs: (\d+)", script)[1]) / 1000
    assert live.GATHER_SECONDS + pause <= 1.25


class Waits(Exception):
    """Raised where the stream would wait for new lines."""


@pytest.mark.django_db(transaction=True)
def test_a_stream_of_the_api_skips_nothing_and_waits_only_at_the_end(lab, monkeypatch):
    """`muster logs -f` is a record. Pages that end early (by bytes, or with an attempt) are no reason to wait."""
    job = lab.running(max_retries=1)
    for number in range(4):
        burst(job, 1 + number, 4, first=4 * number, text="x" * 700_000 + " {}")
    job = lab.finish(job, 1, 1)
    assert job.attempt == 2
    burst(job, 1, 1200, first=0)

    @asynccontextmanager
    async def listening(listener):
        yield hints.Hub()

    async def rest(*_):
        raise Waits

    monkeypatch.setattr(hints, "listening", listening)  # Redis is not needed to read stored lines
    monkeypatch.setattr(hints.Listener, "hears_of", rest)
    texts: list[str] = []
    access = Access(lab.user.pk, frozenset({job.team_id}), token=Token.issue(lab.user, "x")[0].pk)

    async def read() -> None:
        async for event in log_stream.events(job.pk, access, {"cursor": ""}):
            texts.extend(re.findall(r'"text": "x* ?(.*?)"', event))

    with pytest.raises(Waits):
        asyncio.run(read())
    assert texts == [*(str(number) for number in range(16)), *(f"line {number}" for number in range(1200))]


def test_a_page_reports_whether_there_is_more(lab):
    job = lab.running()
    burst(job, 1, 600, first=0)
    first = reader.read(job=job)
    assert first.has_more
    assert not reader.read(job=job, cursor=first.cursor).has_more


def test_the_cursor_of_a_log_of_1024_ranks_fits_into_a_url():
    numbers = random.Random(7)
    streams = [(500_000 + rank // 8, rank) for rank in range(1024)] + [(500_000 + node, -1) for node in range(128)]
    place = Cursor(
        3, {stream: numbers.randrange(10_000_000) for stream in streams}, 9_000_000, 9_100_000, 1_763_700_000.0
    )
    assert len(place.encode()) < 7500
    assert decode(place.encode()) == place


@pytest.mark.parametrize("count", [cursor.MOST_STREAMS + 1, 170_000])
def test_a_cursor_with_more_streams_than_a_job_has_is_refused(count):
    """1.4 KB that named 170,000 streams took 0.7 s, again for each hint of an open stream."""
    streams = [1] * count
    text = base64.urlsafe_b64encode(
        zlib.compress(json.dumps([1, 0, 0, 0, streams, streams, streams]).encode())
    ).decode()
    with pytest.raises(InvalidInput):
        decode(text)


def test_a_cursor_of_an_earlier_release_can_still_be_decoded():
    place = json.dumps([2, 5, 9, 1_763_700_000, [[7, -1, 3], [7, 0, 40]]])
    text = base64.urlsafe_b64encode(zlib.compress(place.encode())).decode().rstrip("=")
    assert decode(text) == Cursor(2, {(7, -1): 3, (7, 0): 40}, 5, 9, 1_763_700_000.0)


@pytest.mark.parametrize(
    "place", [[1, 0, 0, 0], [1, 0, 0, 0, [1], [1], []], [1, 0, 0, 0, ["a"], [1], [1]], [1, 0, 0, 0, 5]]
)
def test_a_malformed_cursor_is_refused(place):
    text = base64.urlsafe_b64encode(zlib.compress(json.dumps(place).encode())).decode()
    with pytest.raises(InvalidInput):
        decode(text)
