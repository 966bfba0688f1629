"""When a finished job is removed, as a time and in words."""

from datetime import UTC, datetime

import pytest

from jobs.core import removal
from jobs.core.spec import JobSpec, parse

ENDED = datetime(2026, 3, 1, 11, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kept", "finished_at", "words"),
    [
        (10_800, None, "removed 3 h after its end"),
        (10_800, ENDED, "removed 3 h after its end, at 14:05 UTC"),
        (7 * 86_400, ENDED, "removed 7 d after its end, on 2026-03-08 at 11:05 UTC"),
        (90, ENDED, "removed 1 min 30 s after its end, at 11:06 UTC"),
    ],
)
def test_it_is_said_when_a_job_is_removed(kept, finished_at, words):
    assert removal.words(kept, finished_at=finished_at) == words


def test_a_job_stays_as_long_as_its_agents_may_deliver():
    assert removal.kept_seconds(90, drain_seconds=300.0) == 300
    assert removal.kept_seconds(7200, drain_seconds=300.0) == 7200


def test_a_spec_without_it_is_stored_as_the_release_before_knows_it():
    assert "ttl_seconds" not in parse({"command": "true"}).to_json()
    stored = parse({"command": "true"}, defaults={"ttl_seconds": 60}).to_json()
    assert JobSpec.from_json(stored).ttl_seconds == stored["ttl_seconds"] == 60
