"""muster usage: what was used, as a table and as the API's objects."""

from __future__ import annotations

import json

from tests.process.client.conftest import Run
from tests.process.client.fake import FakeMuster
from tests.process.client.fake_more import usage_row


def test_sums_are_shown_without_the_columns_that_they_are_over(run: Run, logged_in: FakeMuster) -> None:
    shown = run("usage", "--by", "user", "--team", "vision", "--since", "2026-03-01", "--daily")
    assert shown.exit_code == 0, shown.stderr
    header, line = shown.stdout.splitlines()
    assert header.split() == ["DAY", "TEAM", "USER", "OF", "HOURS", "LOST", "IDLE"]
    assert line.split() == ["2026-03-01", "vision", "ada", "gpu", "12.3", "2.0", "1.5"]
    asked = logged_in.requests[-1]["query"]
    assert asked == {"by": "user", "team": "vision", "since": "2026-03-01", "step": "day"}
    assert json.loads(run("usage", "-o", "json").stdout) == [usage_row()]


def test_a_day_that_is_none_is_refused_here(run: Run, logged_in: FakeMuster) -> None:
    refused = run("usage", "--since", "yesterday")
    assert refused.exit_code == 2 and "no day such as 2026-03-31" in refused.stderr
