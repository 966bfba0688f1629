"""Parsing responses of older and newer servers."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone

import pytest
from muster.errors import UnexpectedAnswer
from muster.jobs.models import Event, Job, LogLine, LogPage, Me, Rank, Series

from tests.process.client import fake


def test_unknown_fields_of_a_newer_server_are_kept() -> None:
    job = Job.parse(fake.job(7))

    assert (job.id, job.command, job.ranks.waiting) == (7, ("torchrun", "train.py"), 2)
    assert job.raw["from_the_future"] is True


def test_missing_and_null_fields_take_their_defaults() -> None:
    job = Job.parse({"id": 1, "phase": "queued", "message": None, "ranks": None})

    assert (job.message, job.ranks.total, job.first_failure, job.created_at) == ("", 0, None, None)


@pytest.mark.parametrize("text", ["2026-11-21T10:00:00Z", "2026-11-21T10:00:00+00:00", "2026-11-21T10:00:00"])
def test_times_have_a_time_zone(text: str) -> None:
    assert Job.parse({"id": 1, "phase": "queued", "created_at": text}).created_at == datetime(
        2026,
        11,
        21,
        10,
        tzinfo=timezone.utc,  # noqa: UP017
    )


def test_the_first_failure_is_parsed() -> None:
    job = Job.parse({**fake.job(1), "phase": "failed", "first_failure": fake.failure()})

    assert job.first_failure is not None
    assert (job.first_failure.rank, job.first_failure.exit_code, len(job.first_failure.last_lines)) == (3, 7, 2)


def test_the_state_of_a_rank_is_in_the_words_of_the_pages() -> None:
    read = [Rank.parse({"rank": 0, **one}) for one in (
        {"state": "failed", "is_stopped": True}, {"state": "waiting", "is_unseen": True}, {"state": "waiting"},
    )]  # fmt: skip
    assert [one.shown_state for one in read] == ["stopped", "not seen", "waiting"]


@pytest.mark.parametrize("answer", [{}, {"id": 1}, None, [], {"id": 1, "phase": "queued", "created_at": "yesterday"}])
def test_a_response_that_is_not_a_job_is_an_error(answer: object) -> None:
    with pytest.raises(UnexpectedAnswer, match="a Job this client cannot read"):
        Job.parse(answer)


def test_models_are_frozen_and_hashable() -> None:
    job = Job.parse(fake.job(1))

    assert {job: "here"}[Job.parse(fake.job(1))] == "here"
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.phase = "running"  # type: ignore[misc]


def test_the_other_responses_are_parsed() -> None:
    assert LogLine.parse({"at_ms": 1000, "text": "x", "rank": -1}).is_launcher
    assert LogPage.parse({"lines": [{"at_ms": 1, "text": "x"}], "cursor": "c"}).lines[0].text == "x"
    assert Rank.parse({"rank": 0, "step": 12}).step == 12
    assert Event.parse({"at": fake.NOW, "kind": "submitted"}).kind == "submitted"
    assert Me.parse({"user": "ada", "teams": [{"name": "vision", "role": "member"}]}).teams[0].name == "vision"
    assert Series.parse({"name": "loss", "points": [[1, None, 0.5]]}).points[0].value == 0.5


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"suspended": True}, True),
        ({"suspended": False}, False),
        ({}, True),
        ({"phase": "running", "suspended": True}, False),
    ],
)
def test_a_job_is_suspended_by_its_phase_unless_it_was_resumed(fields: dict[str, object], expected: bool) -> None:
    assert Job.parse({"id": 1, "phase": "suspended", **fields}).is_suspended is expected
