"""An agent that sent nothing for a minute is silent, if its replica runs."""

from datetime import UTC, datetime, timedelta

import pytest

from jobs.core.silence import SILENT, silent_for

NOW = datetime(2026, 11, 1, tzinfo=UTC)
LONG_AGO, JUST_NOW = NOW - SILENT - timedelta(seconds=5), NOW - SILENT + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("state", "started_at", "last_batch_at", "expected"),
    [
        ("running", LONG_AGO, LONG_AGO, timedelta(seconds=65)),
        ("running", LONG_AGO, None, timedelta(seconds=65)),  # it never sent anything
        ("running", NOW, NOW - SILENT, SILENT),  # from a minute on
        ("running", LONG_AGO, JUST_NOW, None),
        ("running", JUST_NOW, None, None),
        ("running", None, None, None),  # it is not known to have started
        ("pending", LONG_AGO, None, None),
        ("failed", LONG_AGO, LONG_AGO, None),
    ],
)
def test_silence_counts_from_the_last_batch_or_the_start(state, started_at, last_batch_at, expected):
    assert silent_for(state, started_at=started_at, last_batch_at=last_batch_at, now=NOW) == expected
