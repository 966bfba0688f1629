"""Pages of a log are exact, bounded and complete together, and following a log is cheap."""

import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.ingest import apply
from jobs.logs import reader, segments
from jobs.logs.segments import EVERYBODY, LogSource
from tests.support.builders import batch, identity, item, log_item

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("files")]
T = float(int(time.time()) - 600)  # near the present: the control plane clamps times that are far off


@pytest.fixture
def job(lab):
    return lab.running()


def send(job, seq, *items, index=0):
    return apply.apply_batch(identity=identity(job, index), batch=batch(seq, *items))


def pages(job, **asked):
    cursor = ""
    while (page := reader.read(job=job, cursor=cursor, **asked)).lines:
        yield page
        cursor = page.cursor


def test_a_page_may_end_within_a_segment_and_the_next_continues_there(job):
    send(job, 1, log_item(0, 0, [(T + n, f"a{n}") for n in range(100)]))
    send(job, 1, log_item(2, 0, [(T + n + 0.5, f"b{n}") for n in range(100)]), index=1)
    found = list(pages(job, limit=30))
    assert [len(page.lines) for page in found] == [30] * 6 + [20]
    assert [line.text for page in found for line in page.lines] == [f"{x}{n}" for n in range(100) for x in "ab"]


def test_a_page_of_huge_lines_is_bounded_in_bytes(job):
    for seq in range(1, 13):
        send(job, seq, log_item(0, seq - 1, [(T + seq, "x" * 2**20)]))
    found = list(pages(job, limit=500))
    assert sum(len(page.lines) for page in found) == 12
    assert max(sum(len(line.text) for line in page.lines) for page in found) <= reader.MAX_PAGE_BYTES
    assert len(reader.read(job=job, tail=500).lines) <= 4


def test_a_follower_reads_only_new_lines_with_one_query(job, django_assert_num_queries):
    for seq in range(1, 30):
        send(job, seq, log_item(0, seq - 1, [(T + seq, f"line {seq}")]))
    place = reader.read(job=job, tail=5).cursor
    send(job, 30, log_item(0, 29, [(T + 30, "new")]))
    with django_assert_num_queries(1):
        page = reader.read(job=job, cursor=place)
    assert [line.text for line in page.lines] == ["new"]


def test_lines_declared_by_a_segment_but_absent_are_shown_as_missing(job):
    whole = log_item(0, 0, [(T, "one"), (T, "two")])
    send(job, 1, type(whole)("log", {**whole.fields, "lines": 7}, whole.blob))
    send(job, 2, log_item(0, 7, [(T + 1, "after")]))
    found = reader.read(job=job)
    assert [line.text for line in found.lines] == ["one", "two", "[5 lines are missing here]", "after"]
    assert reader.read(job=job, cursor=found.cursor).lines == []


def test_lines_beyond_the_declared_number_are_not_shown(job):
    whole = log_item(0, 0, [(T, "one"), (T, "two"), (T, "three")])
    send(job, 1, type(whole)("log", {**whole.fields, "lines": 2}, whole.blob))
    assert [line.text for line in reader.read(job=job).lines] == ["one", "two"]


def test_a_decompression_bomb_is_shown_as_a_gap_and_the_rest_is_read(job):
    bomb = zlib.compress(b"0 " + b"x" * 200_000_000)
    small = log_item(0, 0, [(T, "x")])
    send(job, 1, type(small)("log", {**small.fields, "bytes": len(bomb)}, bomb))
    send(job, 2, log_item(0, 1, [(T + 1, "after")]))
    first, second = reader.read(job=job).lines
    assert first.is_gap and "unpack to more than" in first.text
    assert second.text == "after"


def test_a_missing_file_is_shown_as_a_gap(job, settings):
    send(job, 1, log_item(0, 0, [(T, "x")]))
    for path in settings.MEDIA_ROOT.rglob("*.z"):
        path.unlink()
    (line,) = reader.read(job=job).lines
    assert line.is_gap and "cannot be read" in line.text


def test_a_tail_of_all_ranks_skips_the_old_lines_of_a_silent_one(job):
    send(job, 1, log_item(2, 0, [(T, "long ago")]), index=1)
    for seq in range(1, 10):
        send(job, seq, log_item(0, seq - 1, [(T + seq, f"line {seq}")]))
    page = reader.read(job=job, tail=4)
    assert [line.text for line in page.lines] == [f"line {seq}" for seq in range(6, 10)]
    send(job, 2, log_item(2, 1, [(T + 20, "again")]), item("gap", rank=-1, first_line=0, lines=3, raw_bytes=9), index=1)
    assert {line.rank for line in reader.read(job=job, cursor=page.cursor).lines} == {2, -1}


MANY = 1_000_000


@pytest.fixture
def dense(job, monkeypatch):
    """A million lines in a few kilobytes; returns the list of lines that were parsed."""
    text = zlib.compress(b"1 \n" * MANY)
    small = log_item(0, 0, [(T, "x")])
    send(job, 1, type(small)("log", {**small.fields, "lines": MANY, "raw_bytes": 3 * MANY, "bytes": len(text)}, text))
    found, parsed = [], segments.parsed
    monkeypatch.setattr(segments, "parsed", lambda raw, **times: found.append(raw) or parsed(raw, **times))
    return found


def test_a_reader_of_a_dense_segment_parses_only_the_lines_that_it_needs(job, dense):
    asked = [
        lambda: len(reader.read(job=job, tail=1).lines) == 1,
        lambda: len(reader.read(job=job, limit=3).lines) == 3,
        lambda: len(reader.last_lines(job=job, attempt=1, rank=0, count=400)) == 400,
        lambda: (
            reader.catch_up(job=job, source=EVERYBODY, cursor=reader.read(job=job, limit=1).cursor, limit=5).skipped
            == MANY - 6
        ),
    ]
    assert all(is_right() for is_right in asked)
    assert len(dense) <= 1 + 3 + 400 + 1 + 2 * 6


def test_a_tail_is_limited_to_the_size_of_a_page(job, dense):
    assert len(reader.read(job=job, tail=999_999_999).lines) == reader.MAX_PAGE_LINES


@pytest.mark.parametrize("before", ["ends", "newest", "unread"])
def test_a_dense_segment_that_arrives_during_a_tail_read_is_not_parsed_whole(job, monkeypatch, before):
    send(job, 1, log_item(0, 0, [(T, "first"), (T, "second")]))
    text = zlib.compress(b"1 \n" * MANY)
    small = log_item(0, 2, [(T, "x")])
    dense = type(small)("log", {**small.fields, "lines": MANY, "raw_bytes": 3 * MANY, "bytes": len(text)}, text)
    parsed, asked = segments.parsed, getattr(segments, before)
    made = []

    def meanwhile(**which):
        monkeypatch.setattr(segments, before, asked)
        send(job, 2, dense)
        return asked(**which)

    monkeypatch.setattr(segments, before, meanwhile)
    monkeypatch.setattr(segments, "parsed", lambda raw, **times: made.append(raw) or parsed(raw, **times))
    page = reader.read(job=job, tail=1)
    assert len(page.lines) == 1 and len(made) <= 2
    rest = reader.read(job=job, cursor=page.cursor, limit=3)
    assert len(rest.lines) == (3 if before == "unread" else 0)


def test_the_tail_of_one_stream_spans_its_segments(job):
    send(job, 1, log_item(0, 0, [(T + n, f"a{n}") for n in range(5)]))
    send(job, 2, log_item(0, 5, [(T + n, f"a{n}") for n in range(5, 7)]))
    send(job, 1, log_item(2, 0, [(T + 5.5, "b")]), index=1)
    assert [line.text for line in reader.read(job=job, tail=4).lines] == ["a4", "a5", "b", "a6"]
    assert [line.text for line in reader.read(job=job, source=LogSource(0), tail=3).lines] == ["a4", "a5", "a6"]


@given(st.lists(st.text("ab", max_size=5), max_size=40), st.booleans(), st.integers(1, 9), st.data())
def test_lines_between_equals_slicing_the_whole_text(lines, is_ended, block, data):
    skip = data.draw(st.integers(0, len(lines)))
    text = "\n".join(lines) + "\n" * (is_ended and bool(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "BLOCK", block)
        assert list(segments.lines_between(text, skip, len(lines))) == lines[skip:]
