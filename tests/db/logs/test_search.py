"""Downloading and searching a whole log."""

import threading
import time
import zlib

import pytest
from django.db import connection

from accounts.models import Team
from common.errors import Busy, InvalidInput
from jobs.ingest import apply
from jobs.logs import search, segments
from jobs.logs.segments import LogSource
from jobs.models import Job
from tests.support.builders import batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)


@pytest.fixture
def job(lab):
    job = lab.running()
    for seq in range(1, 31):
        lines = [(T + seq, f"{'LOSS' if n == 3 else 'step'} {seq}-{n}") for n in range(5)]
        apply.apply_batch(identity=identity(job), batch=batch(seq, log_item(0, (seq - 1) * 5, lines)))
    apply.apply_batch(identity=identity(job, 1), batch=batch(1, log_item(2, 0, [(T + 15.5, "loss of rank 2")])))
    return job


def test_the_whole_log_is_streamed_in_pieces_and_in_order(job, monkeypatch):
    monkeypatch.setattr(search, "PIECE_LINES", 7)
    pieces = list(search.stream_text(job=job))
    assert max(piece.count("\n") for piece in pieces) == 7
    lines = "".join(pieces).splitlines()
    assert len(lines) == 151
    assert lines[75].endswith("rank 2  loss of rank 2")
    assert [line.split()[-1] for line in lines if "rank 0" in line] == [
        f"{s}-{n}" for s in range(1, 31) for n in range(5)
    ]


def test_one_rank_can_be_downloaded_separately(job):
    assert "".join(search.stream_text(job=job, source=LogSource(2))).count("\n") == 1


def test_matches_are_returned_with_their_line_numbers(job):
    found = search.search(job=job, by=1, text="loss", limit=1000)
    assert found.next == ""
    assert [one.number for one in found.lines if one.line.rank == 0] == [seq * 5 + 3 for seq in range(30)]
    assert [one.line.text for one in found.lines if one.line.rank == 2] == ["loss of rank 2"]
    assert len(search.search(job=job, by=1, text="loss", source=LogSource(2)).lines) == 1


def test_the_timestamp_before_a_line_is_not_searched(job):
    assert search.search(job=job, by=1, text=str(int(T))[:6]).lines == []


@pytest.mark.parametrize("limit", [1, 3, 30])
def test_a_search_continues_where_it_stopped(job, limit, monkeypatch):
    monkeypatch.setattr(search, "SEARCH_BYTES", 400)
    monkeypatch.setattr(search, "ROWS", 4)
    seen, start = [], ""
    while True:
        found = search.search(job=job, by=1, text="step", source=LogSource(0), limit=limit, start=start)
        assert len(found.lines) <= limit
        seen += [one.number for one in found.lines]
        start = found.next
        if not start:
            break
    assert seen == [number for number in range(150) if number % 5 != 3]


def test_a_search_is_bounded_in_time_and_returns_where_to_continue(job, monkeypatch):
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.0)
    seen, start, calls = [], "", 0
    while calls == 0 or start:
        found = search.search(job=job, by=1, text="step", source=LogSource(0), limit=1000, start=start)
        seen, start, calls = [*seen, *(one.number for one in found.lines)], found.next, calls + 1
    assert calls > 10
    assert seen == [number for number in range(150) if number % 5 != 3]


@pytest.mark.django_db(transaction=True)
def test_a_search_holds_no_database_connection_while_it_waits_and_scans(job, monkeypatch):
    kept = []

    def content(segment, real=segments.content, **asked):
        kept.append(connection.connection is not None)
        return real(segment, **asked)

    monkeypatch.setattr(segments, "content", content)
    assert search.search(job=job, by=1, text="loss", limit=1000).lines
    assert kept and not any(kept)


@pytest.fixture
def slow(job, monkeypatch):
    """Starts searches for `slow` by user 1 in threads of their own; they end when the test does."""
    go_on, begun, answers, threads = threading.Event(), threading.Semaphore(0), [], []

    def look(*asked, real=search.scan, **where):
        if not asked[1]("slow"):
            return real(*asked, **where)
        begun.release()
        assert go_on.wait(60)
        return search.SearchResult([], "")

    def ask(count: int) -> None:
        for _ in range(count):
            one = threading.Thread(target=lambda: answers.append(search.search(job=job, by=1, text="slow")))
            threads.append(one)
            one.start()

    monkeypatch.setattr(search, "scan", look)
    ask(1)
    assert begun.acquire(timeout=60)
    yield ask
    go_on.set()
    for one in threads:
        one.join(60)
    assert len(answers) == len(threads)


def test_searches_of_one_team_do_not_delay_those_of_another(job, slow, people):
    slow(2)
    team = Team.objects.create(name="others")
    other = Job.objects.create(team=team, queue=job.queue, user=people.stranger, name="other", spec=job.spec, slots=1)
    assert search.search(job=other, by=2, text="loss").lines == []


def test_a_user_with_too_many_waiting_searches_is_refused(job, slow):
    slow(search.MOST_WAITING)
    end = time.monotonic() + 60
    while search.searching.waiting() < search.MOST_WAITING:
        assert time.monotonic() < end
        time.sleep(0.01)
    with pytest.raises(Busy, match="try again in"):
        search.search(job=job, by=1, text="loss")


def test_gaps_are_not_searched(job):
    gap = item("gap", rank=0, first_line=150, lines=9, raw_bytes=99, first_at=T, last_at=T)
    apply.apply_batch(identity=identity(job), batch=batch(31, gap))
    assert search.search(job=job, by=1, text="missing").lines == []
    assert "9 lines, 99 bytes are missing here" in "".join(search.stream_text(job=job))


@pytest.mark.parametrize("asked", [{"text": " "}, {"text": "x", "start": "nonsense"}, {"text": "x", "start": "1"}])
def test_an_invalid_search_is_refused(job, asked):
    with pytest.raises(InvalidInput):
        search.search(job=job, by=1, **asked)


def test_a_search_within_one_dense_segment_stops_in_time_and_continues_there(job, monkeypatch):
    text = zlib.compress(b"".join(b"1 %d\n" % n for n in range(20_000)))
    small = log_item(0, 0, [(T, "x")])
    fields = {**small.fields, "first_line": 150, "lines": 20_000, "raw_bytes": 2**20, "bytes": len(text)}
    apply.apply_batch(identity=identity(job), batch=batch(31, type(small)("log", fields, text)))
    monkeypatch.setattr(search, "SEARCH_SECONDS", -1.0)  # the time of each call is already over at its first check
    found, starts, start = [], [], ""
    while True:
        part = search.search(job=job, by=1, text="7777", start=start)
        found += [one.line.text for one in part.lines]
        if not part.next:
            break
        starts.append(start := part.next)
        assert len(starts) == len(set(starts)), "it does not get on"
    assert found == [str(n) for n in range(20_000) if "7777" in str(n)]


# -- regular expressions


def test_a_regular_expression_finds_lines_and_continues(job):
    found = search.search(job=job, by=1, text=r"^loss (1|2)\d-3$", is_regex=True)
    assert [one.line.text for one in found.lines] == [f"LOSS {seq}-3" for seq in range(10, 30)]
    part = search.search(job=job, by=1, text=r"step \d+-0", is_regex=True, limit=10)
    rest = search.search(job=job, by=1, text=r"step \d+-0", is_regex=True, start=part.next)
    assert [len(part.lines), len(rest.lines)] == [10, 20]


@pytest.mark.parametrize("pattern", ["(", "a{1001}{1000}", r"(?=x)", r"(a)\1", "x" * 1001, "[z-a]"])
def test_an_expression_that_cannot_be_searched_for_is_refused_with_its_reason(job, pattern):
    with pytest.raises(InvalidInput) as refused:
        search.search(job=job, by=1, text=pattern, is_regex=True)
    assert "regular expression" in str(refused.value)


@pytest.mark.parametrize("pattern", ["(.{30}){33}x", ".{1,1000}x", "[^x]{1,900}[^y]{1,900}z"])
def test_an_expression_that_repeats_too_much_is_refused(job, pattern):
    with pytest.raises(InvalidInput, match="repeats too much"):
        search.matcher(pattern, is_regex=True)


def test_the_time_is_looked_at_after_each_long_line(job, monkeypatch):
    lines = [(T + n, ("x" * 2000 if n < 5 else "short") + str(n)) for n in range(12)]
    apply.apply_batch(identity=identity(job), batch=batch(31, log_item(0, 150, lines)))
    monkeypatch.setattr(search, "SEARCH_SECONDS", -1.0)
    monkeypatch.setattr(search, "REGEX_LOOK_LINES", 1000)
    starts, start, found = [], "", []
    while True:
        part = search.search(job=job, by=1, text=r"x\d$|short", is_regex=True, start=start)
        found += part.lines
        if not part.next:
            break
        starts.append(start := part.next)
    inside = [one for one in starts if not one.endswith(".0")]
    assert len(found) == 12 and len(inside) == 4, starts


def test_no_expression_takes_more_than_time_in_proportion_to_the_line(job):
    line = "a" * 20_000
    matches = search.matcher(r"(a+)+$b", is_regex=True)
    began = time.thread_time()
    assert not matches(line)
    assert time.thread_time() - began < 5  # Python's own `re` would need longer than the universe has existed


def test_page_and_api_search_by_expression(as_, people, job):
    page = as_(people.viewer).get(f"/jobs/{job.pk}/logs/find", {"q": r"loss 1\d", "re": "1"})
    assert "10 lines" in page.text
    assert (
        "is not a regular expression that can be searched for"
        in as_(people.viewer).get(f"/jobs/{job.pk}/logs/find", {"q": "(", "re": "1"}).text
    )
    client = as_(people.viewer)
    found = client.get(f"/api/v1/jobs/{job.pk}/logs/search", {"text": r"loss 1\d", "regex": "true"}).json()
    assert found["regex"] is True and len(found["lines"]) == 10
    assert client.get(f"/api/v1/jobs/{job.pk}/logs/search", {"text": "(", "regex": "true"}).status_code == 422
    assert client.get(f"/api/v1/jobs/{job.pk}/logs/search", {"text": "a", "regex": "maybe"}).status_code == 422
