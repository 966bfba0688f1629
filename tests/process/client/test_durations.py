"""Durations on the command line and in job files."""

from __future__ import annotations

import pytest
from muster.commands.durations import seconds_of, span
from muster.commands.job_file import read_job
from muster.errors import JobFileError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604800), ("1h30m", 5400), ("1d 12H", 129600)],
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "soon", "2 weeks", "-1h", "30m1h", "1.5h", "h"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 90s, 15m, 2h, 7d or 1h30m"):
        seconds_of(text)
    with pytest.raises(JobFileError, match=r"job.yaml: ttl_seconds .* is no duration"):
        read_job(f"ttl: '{text}'", source="job.yaml")


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (90, "1m30s"), (7200, "2h"), (604800, "7d"), (90061, "1d1h")])
def test_a_duration_is_written_as_it_is_read(seconds: int, text: str) -> None:
    assert span(seconds) == text
