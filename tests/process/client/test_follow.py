"""When to request more of a log. No network, no clock."""

from __future__ import annotations

import json

import pytest
from muster.jobs.follow import (  # fmt: skip
    BUSY_PAGE_LINES,
    MOST_EMPTY_PAGES,
    MOST_EMPTY_STREAMS,
    PAGES_PER_LOOK,
    REST_SECONDS,
    Follower,
    LogReader,
    Seen,
    wait_pause,
)
from muster.jobs.models import Job, LogLine, LogPage

LINE = LogLine(1, "x")


def test_an_attempt_without_output_does_not_hide_the_next() -> None:
    reader = LogReader(1)

    reader.take(LogPage(cursor="attempt-2"))
    assert not reader.is_done
    reader.take(LogPage((LINE,), cursor="attempt-2, line 1"))
    assert not reader.is_done
    reader.take(LogPage(cursor="attempt-2, line 1"))
    assert reader.is_done


def test_a_cursor_that_keeps_changing_does_not_block_a_reader_forever() -> None:
    reader = LogReader(1)
    for at in range(MOST_EMPTY_PAGES):
        assert not reader.is_done
        reader.take(LogPage(cursor=str(at)))

    assert reader.is_done


def test_a_follower_continues_past_empty_pages_until_the_log_is_complete() -> None:
    reader = LogReader(1, is_following=True)
    for _ in range(MOST_EMPTY_PAGES + 1):
        reader.take(LogPage(cursor="same"))
    assert not reader.is_done

    assert reader.take(LogPage(cursor="same", is_complete=True)) == 0
    assert reader.is_done


def test_a_follower_pauses_only_if_no_more_lines_are_waiting() -> None:
    reader = LogReader(1, is_following=True)

    assert reader.take(LogPage((LINE,) * BUSY_PAGE_LINES, cursor="a")) == 0
    assert reader.take(LogPage((LINE,), cursor="b")) == REST_SECONDS


def test_the_tail_is_requested_once_and_waiting_starts_after_the_first_page() -> None:
    reader = LogReader(1, tail=5, is_following=True)
    assert reader.call().params == {"tail": 5}

    reader.take(LogPage((LINE,), cursor="a"))
    assert reader.call().params == {"cursor": "a", "wait": 10}


@pytest.mark.parametrize(
    ("waited", "timeout", "expected"),
    [(0, None, 0.5), (10, None, 1.0), (3600, None, 2.0), (9.75, 10, 0.25), (10, 10, 0.01)],
)
def test_pauses_of_a_wait_grow_but_respect_its_timeout(waited: float, timeout: float | None, expected: float) -> None:
    assert wait_pause(waited, timeout=timeout) == expected


def job_in(phase: str, **given: object) -> Job:
    return Job(1, phase, is_finished=phase in ("succeeded", "failed", "cancelled"), **given)  # type: ignore[arg-type]


def played(answers: list[Seen]) -> tuple[list[Seen], Follower]:
    """Feed these responses to a follower, one per request. Return what it yields, and the follower."""
    follower, told = Follower(LogReader(1, is_following=True), has_stream=False), []
    for answer in answers:
        assert not follower.is_done
        wants_job = not follower.call().path.endswith("/logs")
        assert wants_job == isinstance(answer, Job), f"it asked {follower.call().path}"
        told += list(follower.take(answer))
    return told, follower


def test_a_follower_yields_phases_and_lines_in_order() -> None:
    page = LogPage((LINE,), cursor="a")
    queued, running, done = job_in("queued"), job_in("running"), job_in("succeeded")

    told, follower = played(
        [queued, LogPage(cursor="0"), running, page, LogPage(cursor="a"), running, LogPage(is_complete=True), done]
    )

    assert told == [queued, running, page, done]
    assert (follower.is_done, follower.cursor) == (True, "a")


def test_the_end_is_yielded_only_after_the_job_has_ended() -> None:
    """A log may be complete a moment before the last step of the job is recorded."""
    stopping, done = job_in("stopping"), job_in("failed")

    told, follower = played([stopping, LogPage(is_complete=True), stopping, done])

    assert told == [stopping, done]
    assert follower.is_done


def test_a_suspended_job_is_followed_to_its_last_line_only() -> None:
    page, suspended = LogPage((LINE,), cursor="a"), job_in("suspended")

    told, follower = played([job_in("running"), LogPage(cursor="0"), suspended, page, LogPage(cursor="a")])

    assert told[1:] == [suspended, page, suspended]
    assert follower.is_done


def test_a_job_that_prints_without_pause_is_still_polled() -> None:
    page = LogPage((LINE,), cursor="a")

    told, _ = played([job_in("running"), *[page] * PAGES_PER_LOOK, job_in("stopping")])

    assert told[-1] == job_in("stopping")


def test_every_request_of_a_follower_outlasts_a_restart() -> None:
    follower = Follower(LogReader(1, is_following=True))
    assert follower.call().patience_seconds > 60
    list(follower.take(job_in("running")))
    assert follower.call().patience_seconds > 60
    assert follower.stream().patience_seconds > 60


def event(kind: str, **content: object) -> list[str]:
    return [f"event: {kind}", f"data: {json.dumps(content)}", ""]


def streaming(phase: str = "running") -> Follower:
    """Return a follower that has read the job and opened the stream."""
    follower = Follower(LogReader(1, is_following=True))
    list(follower.take(job_in(phase)))
    assert follower.is_streaming
    follower.stream()
    return follower


def heard(follower: Follower, *lines: str) -> list[Seen]:
    return [seen for line in lines for seen in follower.receive(line)]


def test_a_stream_advances_its_cursor_by_whole_events_only() -> None:
    follower, (one, two) = streaming(), ([{"at_ms": 1, "text": text}] for text in ("one", "two"))

    (page,) = heard(follower, *event("lines", lines=one, cursor="a"), *event("lines", lines=two, cursor="b")[:2])
    assert isinstance(page, LogPage) and [line.text for line in page.lines] == ["one"]
    follower.broke_off()
    assert follower.stream().params == {"cursor": "a"}
    assert (
        heard(follower, *event("lines", lines=two, cursor="b")[1:]) == []
    )  # the line with the kind came before the break


def test_a_stream_triggers_a_look_at_the_job_only_on_a_new_phase() -> None:
    follower = streaming()

    heard(follower, ": still here", "", *event("phase", phase="running", message=""))
    assert not follower.wants_look
    heard(follower, *event("phase", phase="stopping", message="cancelled"))
    assert follower.wants_look
    assert list(follower.take(job_in("stopping", message="cancelled"))) == [job_in("stopping", message="cancelled")]
    assert follower.is_streaming


def test_a_stream_ends_with_the_log_and_the_follower_with_the_job() -> None:
    follower = streaming()

    assert heard(follower, *event("end", lines=[{"at_ms": 1, "text": "told before"}], is_complete=True)) == []
    assert follower.wants_look
    list(follower.take(job_in("stopping")))
    assert (follower.is_streaming, follower.is_done, follower.rest_seconds) == (False, False, REST_SECONDS)
    list(follower.take(job_in("succeeded")))
    assert follower.is_done


def test_the_last_lines_of_a_suspended_job_are_polled() -> None:
    follower = streaming()
    heard(follower, *event("phase", phase="suspended", message=""))
    list(follower.take(job_in("suspended")))

    assert not follower.is_streaming
    assert follower.call().path.endswith("/logs")


def test_polling_replaces_streams_that_stay_empty() -> None:
    follower = streaming()
    for _ in range(MOST_EMPTY_STREAMS):
        assert follower.is_streaming
        follower.broke_off()
        follower.stream()

    assert not follower.is_streaming
    assert follower.call().path.endswith("/logs")


def test_a_stream_with_occasional_events_is_kept() -> None:
    follower = streaming()
    for _ in range(3 * MOST_EMPTY_STREAMS):
        heard(follower, *event("phase", phase="running", message=""))
        follower.broke_off()
        follower.stream()
    assert follower.is_streaming


def test_polling_is_used_if_the_server_has_no_streams() -> None:
    follower = streaming()
    follower.do_without_stream()

    assert not follower.is_streaming
    assert follower.call().path.endswith("/logs")
