"""When to ask for more of a log. No network, no clock."""

from __future__ import annotations

import pytest
from muster.follow import (
    BUSY_PAGE_LINES,
    MOST_EMPTY_PAGES,
    PAGES_PER_LOOK,
    REST_SECONDS,
    Follower,
    LogReader,
    Seen,
    wait_pause,
)  # fmt: skip
from muster.models import Job, LogLine, LogPage

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


def job_in(phase: str, **given: object) -> Job:
    return Job(1, phase, is_finished=phase in ("succeeded", "failed", "cancelled"), **given)  # type: ignore[arg-type]


def played(answers: list[Seen]) -> tuple[list[Seen], Follower]:
    """What a follower tells of these answers, each given to the question it asks."""
    follower, told = Follower(LogReader(1, is_following=True)), []
    for answer in answers:
        assert not follower.is_done
        wants_job = not follower.call().path.endswith("/logs")
        assert wants_job == isinstance(answer, Job), f"it asked {follower.call().path}"
        told += list(follower.take(answer))
    return told, follower


def test_a_follower_tells_phases_and_lines_in_their_order() -> None:
    page = LogPage((LINE,), cursor="a")
    queued, running, done = job_in("queued"), job_in("running"), job_in("succeeded")

    told, follower = played(
        [queued, LogPage(cursor="0"), running, page, LogPage(cursor="a"), running, LogPage(is_complete=True), done]
    )

    assert told == [queued, running, page, done]
    assert (follower.is_done, follower.cursor) == (True, "a")


def test_the_end_is_told_only_once_the_job_has_ended() -> None:
    """A log may be complete a moment before the job's last step is written down."""
    stopping, done = job_in("stopping"), job_in("failed")

    told, follower = played([stopping, LogPage(is_complete=True), stopping, done])

    assert told == [stopping, done]
    assert follower.is_done


def test_a_suspended_job_is_followed_to_its_last_line_only() -> None:
    page, suspended = LogPage((LINE,), cursor="a"), job_in("suspended")

    told, follower = played([job_in("running"), LogPage(cursor="0"), suspended, page, LogPage(cursor="a")])

    assert told[1:] == [suspended, page, suspended]
    assert follower.is_done


def test_a_job_that_never_pauses_is_looked_at_all_the_same() -> None:
    page = LogPage((LINE,), cursor="a")

    told, _ = played([job_in("running"), *[page] * PAGES_PER_LOOK, job_in("stopping")])

    assert told[-1] == job_in("stopping")


def test_every_question_of_a_follower_waits_out_a_restart() -> None:
    follower = Follower(LogReader(1, is_following=True))
    assert follower.call().patience_seconds > 60
    list(follower.take(job_in("running")))
    assert follower.call().patience_seconds > 60
