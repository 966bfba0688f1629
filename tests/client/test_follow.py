"""When to ask for more of a log. No network, no clock."""

from __future__ import annotations

import pytest
from muster.follow import BUSY_PAGE_LINES, MOST_EMPTY_PAGES, REST_SECONDS, LogReader, wait_pause
from muster.models import LogLine, LogPage

LINE = LogLine(1, "x")


def test_an_attempt_that_printed_nothing_does_not_hide_the_next() -> None:
    reader = LogReader(1)

    reader.take(LogPage(cursor="attempt-2"))
    assert not reader.is_done
    reader.take(LogPage((LINE,), cursor="attempt-2, line 1"))
    assert not reader.is_done
    reader.take(LogPage(cursor="attempt-2, line 1"))
    assert reader.is_done


def test_a_cursor_that_never_rests_does_not_keep_a_reader_for_ever() -> None:
    reader = LogReader(1)
    for at in range(MOST_EMPTY_PAGES):
        assert not reader.is_done
        reader.take(LogPage(cursor=str(at)))

    assert reader.is_done


def test_a_follower_goes_on_over_empty_pages_until_the_log_is_complete() -> None:
    reader = LogReader(1, is_following=True)
    for _ in range(MOST_EMPTY_PAGES + 1):
        reader.take(LogPage(cursor="same"))
    assert not reader.is_done

    assert reader.take(LogPage(cursor="same", is_complete=True)) == 0
    assert reader.is_done


def test_a_follower_rests_only_where_nothing_more_is_waiting() -> None:
    reader = LogReader(1, is_following=True)

    assert reader.take(LogPage((LINE,) * BUSY_PAGE_LINES, cursor="a")) == 0
    assert reader.take(LogPage((LINE,), cursor="b")) == REST_SECONDS


def test_the_tail_is_asked_for_once_and_waiting_begins_after_the_first_page() -> None:
    reader = LogReader(1, tail=5, is_following=True)
    assert reader.call().params == {"tail": 5}

    reader.take(LogPage((LINE,), cursor="a"))
    assert reader.call().params == {"cursor": "a", "wait": 10}


@pytest.mark.parametrize(
    ("waited", "timeout", "expected"),
    [(0, None, 0.5), (10, None, 1.0), (3600, None, 2.0), (9.75, 10, 0.25), (10, 10, 0.01)],
)
def test_a_wait_grows_patient_but_keeps_its_time(waited: float, timeout: float | None, expected: float) -> None:
    assert wait_pause(waited, timeout=timeout) == expected
