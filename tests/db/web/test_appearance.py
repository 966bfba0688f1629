"""Wording and formatting on the pages."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from common.text import format_bytes, format_duration, plain
from jobs.core.lifecycle import Phase
from jobs.models import RankState
from jobs.templatetags.shapes import SHAPES
from jobs.web import appearance
from jobs.web.phases import bar, legs

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_every_phase_and_rank_state_has_a_distinct_word_and_a_known_shape():
    assert set(appearance.PHASES) == set(Phase)
    assert set(appearance.RANKS) >= set(RankState.values)
    for looks in (appearance.PHASES, appearance.RANKS):
        assert len({look.word for look in looks.values()}) == len(looks)
        assert all(look.shape in SHAPES for look in looks.values())


def test_phases_of_one_tone_differ_in_shape():
    pairs = [(look.tone, look.shape) for look in appearance.PHASES.values()]
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (0.4, "0 s"), (38, "38 s"), (362, "6 min 02 s"), (7620, "2 h 07 min"), (273600, "3 d 4 h")],
)
def test_durations(seconds, words):
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1536, "1.5 KiB"), (812 * 2**20, "812 MiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes(count, words):
    assert format_bytes(count) == words


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        (" 10%\r 50%\r100%", "100%"),
        ("100%\r", "100%"),
        ("a\x00b\x08c", "abc"),
        ("tab\tstays", "tab\tstays"),
        ("\u202eabc", "abc"),
    ],
)
def test_control_sequences_are_removed_from_log_lines(text, seen):
    assert plain(text) == seen


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: no", "e"),
        ("ERROR cannot read", "e"),
        ("error: no such file", "e"),
        ("loss 0.1 error_rate 2", ""),
        ("val_error=0.98", ""),
        ("error=0.98 step=3", ""),
        ("test error: 0.031", ""),
        ("MSEError=0.2", ""),
        ("UserWarning: slow", "w"),
        ("WARN low memory", "w"),
        ("step 1", ""),
    ],
)
def test_severity_is_guessed_from_words(text, kind):
    assert appearance.severity(text) == kind


BEGIN = ago(100)


@dataclass
class Rank:
    rank: int
    step: int | None
    state: str = "running"
    started_at: datetime | None = BEGIN


@pytest.mark.parametrize(
    ("ranks", "late"),
    [
        ([Rank(0, 100), Rank(1, 100), Rank(2, 60)], {2: 40}),
        ([Rank(0, 100), Rank(1, 100), Rank(2, 97)], {}),  # reports a moment later
        ([Rank(0, 100), Rank(1, 100), Rank(2, 60, "failed")], {}),  # failed rather than late
        ([Rank(0, 100), Rank(1, None)], {}),  # reports no steps
        ([Rank(0, 100)], {}),
    ],
)
def test_a_rank_is_late_when_the_reporting_interval_does_not_explain_it(ranks, late):
    assert appearance.lagging(ranks, NOW) == late


def test_the_bar_gives_each_phase_its_share_and_hides_none():
    steps = [
        (Phase.QUEUED, ago(100), 0),
        (Phase.ADMITTED, ago(10), 0),
        (Phase.STARTING, ago(9.99), 1),
        (Phase.RUNNING, ago(5), 1),
    ]
    places = bar(legs(steps), now=NOW)
    assert [place.leg.look.word for place in places] == ["Queued", "Admitted", "Starting", "Running"]
    assert sum(float(place.width) for place in places) == pytest.approx(100, abs=0.1)
    assert float(places[1].width) > 1


def test_a_terminal_phase_ends_the_last_stay():
    stays = legs([(Phase.RUNNING, ago(10), 1), (Phase.STOPPING, ago(5), 1), (Phase.SUCCEEDED, ago(4), 1)])
    assert [stay.phase for stay in stays] == [Phase.RUNNING, Phase.STOPPING]
    assert stays[-1].until == ago(4)
