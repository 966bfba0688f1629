"""Tables, durations, phases."""

from __future__ import annotations

import io
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from muster.commands.session import PHASES
from muster.render import (
    LOOKS,
    STEERING,
    UNLIMITED,
    Terminal,
    ago,
    clock,
    command_line,
    duration,
    inert,
    printable,
    size,
    table,
    terminal_of,
    uncoloured,
)
from rich.cells import cell_len

HEADERS = ("ID", "NAME", "PHASE", "WHY")
ROWS = [
    (1, "short", "running", ""),
    (
        2,
        "a-rather-long-name-for-a-job",
        "queued",
        "needs 16 a100; queue nlp may use 8 until 18:00, or lower nodes to 1",
    ),
    (3, "训练大型语言模型", "failed", "rank 3 exited with code 1"),
]


class FakeTty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [10, 24, 40, 60, 80, 120])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_is_never_wider_than_the_terminal(width: int, is_terminal: bool) -> None:
    lines = table(HEADERS, rows=ROWS, terminal=Terminal(width, has_symbols=is_terminal, has_colour=is_terminal))

    assert max(cell_len(uncoloured(line)) for line in lines) <= width


@pytest.mark.parametrize("width", [200, UNLIMITED])
def test_a_wide_terminal_and_a_pipe_show_full_columns(width: int) -> None:
    lines = table(HEADERS, rows=ROWS, terminal=Terminal(width))

    assert lines == [
        "ID  NAME                          PHASE    WHY",
        "1   short                         running",
        "2   a-rather-long-name-for-a-job  queued   needs 16 a100; queue nlp may use 8 until 18:00, or lower nodes to 1",
        "3   训练大型语言模型              failed   rank 3 exited with code 1",  # wide characters take two columns
    ]


def test_the_widest_column_is_truncated_first_and_marked() -> None:
    lines = table(HEADERS, rows=ROWS[:2], terminal=Terminal(80))

    assert "a-rather-long-name-for-a-job" in lines[2]
    assert lines[2].endswith("…")


def test_on_a_very_narrow_terminal_the_right_columns_are_dropped() -> None:
    lines = table(HEADERS, rows=ROWS, terminal=Terminal(20))

    assert lines == ["ID  NAME    PHASE", "1   short   runni…", "2   a-rat…  queued", "3   训练 …  failed"]


@pytest.mark.parametrize(
    "name", ["[red]not red[/red]", ":smiley:", "[link=https://example.org]here[/link]", "[/]", "[1, 2]"]
)
@pytest.mark.parametrize("terminal", [Terminal(), Terminal(80), Terminal(80, has_symbols=True, has_colour=True)])
def test_markup_in_a_name_is_text(name: str, terminal: Terminal) -> None:
    lines = table(("N", "PHASE"), rows=[(name, "deleted")], terminal=terminal)

    assert lines[1] == f"{name}  deleted"


@pytest.mark.parametrize("has_colour", [True, False])
def test_phases_are_coloured_and_other_words_are_not(has_colour: bool) -> None:
    line = table(("NAME", "PHASE"), rows=[("http://host/1 2 'x'", "running")], terminal=Terminal(80, True, has_colour))[
        1
    ]

    assert line == f"http://host/1 2 'x'  {Terminal(80, True, has_colour).phase('running')}"


def test_a_name_cannot_control_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc\x07") == "a[31mb c"
    assert "\x1b" not in "".join(table(("A",), rows=[("\x1b[2J",)], terminal=Terminal(80)))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-3, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m 00s"), (187, "3m 07s"), (7500, "2h 05m"), (356400, "4d 03h")],
)
def test_a_duration_has_at_most_two_units(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_the_age_of_a_time_is_described() -> None:
    now = datetime(2026, 11, 21, tzinfo=timezone.utc)  # noqa: UP017

    assert (ago(now - timedelta(seconds=90), now=now), ago(None, now=now)) == ("1m 30s ago", "")


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(None, ""), (512, "512 B"), (1536, "1.5 KiB"), (812331008, "774.7 MiB"), (2**50, "1024.0 TiB")],
)
def test_a_size_has_a_readable_unit(size_bytes: int | None, expected: str) -> None:
    assert size(size_bytes) == expected


def test_every_phase_has_a_symbol_and_colour() -> None:
    assert set(PHASES) <= set(LOOKS)


def test_symbols_and_colours_appear_on_terminals_only() -> None:
    assert terminal_of(io.StringIO(), environ={}) == Terminal(UNLIMITED, False, False)
    assert terminal_of(FakeTty(), environ={"COLUMNS": "70"}) == Terminal(70, True, True)
    assert Terminal().phase("running") == "running"
    assert Terminal(80, True, False).phase("running") == "● running"
    assert "\x1b[" in Terminal(80, True, True).phase("running")


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_disabled(environ: dict[str, str]) -> None:
    assert terminal_of(FakeTty(), environ=environ).has_colour is False


@given(
    rows=st.lists(st.lists(st.text(max_size=60), min_size=3, max_size=3), min_size=1, max_size=4),
    width=st.integers(min_value=1, max_value=100),
)
def test_no_text_makes_a_table_too_wide_or_controls_the_terminal(rows: list[list[str]], width: int) -> None:
    lines = table(("A", "B", "C"), rows=rows, terminal=Terminal(width))

    assert len(lines) == len(rows) + 1
    assert max(cell_len(line) for line in lines) <= width
    assert not [char for line in lines for char in line if not char.isprintable()]


@given(st.text())
def test_an_inert_line_has_no_control_characters(text: str) -> None:
    shown = inert(text)

    assert STEERING.search(shown) is None
    assert inert(shown) == shown


def test_a_time_is_in_the_readers_zone_and_names_it(monkeypatch):
    moment = datetime(2026, 7, 28, 4, 5, 6, tzinfo=UTC)
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    assert clock(moment) == "2026-07-27 23:05:06 EST"
    monkeypatch.undo()
    time.tzset()
    assert clock(None) == ""


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1, max_size=4
    )
)
def test_a_command_is_one_line_that_bash_reads_as_its_words(words):
    line = command_line(words)
    assert line.isprintable()
    asked = ["bash", "-c", f"printf '%s\\0' {line}"]
    done = subprocess.run(asked, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]})
    assert done.stdout.decode().split("\0")[:-1] == words


def test_a_word_with_a_newline_is_not_flattened():
    assert command_line(["python", "-c", "# it's\nprint(1)"]) == "python -c $'# it\\'s\\nprint(1)'"


def test_colours_of_a_program_are_taken_away_whole():
    assert uncoloured("boom \x1b[31;1mcolour\x1b[0m") == "boom colour"
