"""Terminal output: tables that fit the width, phases, durations. Plain text for pipes and files."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TextIO

import click

NARROWEST_COLUMN = 6
GAP = "  "
UNLIMITED = 10**6

# Control characters except the tab, marks that reorder text, Unicode line separators, surrogates.
STEERING = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_COLOURS = re.compile(r"\x1b\[[0-9;:]{0,40}m")

# phase or rank state: symbol and colour, the same words as on the web pages
LOOKS: Mapping[str, tuple[str, str]] = {
    "queued": ("○", "yellow"),
    "admitted": ("◔", "yellow"),
    "starting": ("◑", "cyan"),
    "running": ("●", "blue"),
    "stopping": ("◐", "cyan"),
    "suspended": ("‖", "magenta"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "cancelled": ("⊘", "bright_black"),
    "waiting": ("○", "yellow"),
    "not seen": ("○", "bright_black"),
    "stopped": ("⊘", "bright_black"),
}


@dataclass(frozen=True)
class Terminal:
    """The output's width, and whether it supports symbols and colours."""

    width: int = UNLIMITED
    has_symbols: bool = False
    has_colour: bool = False

    def phase(self, phase: str) -> str:
        symbol, colour = LOOKS.get(phase, ("·", "white"))
        phase = printable(phase)
        return self.coloured(f"{symbol} {phase}" if self.has_symbols else phase, colour=colour)

    def coloured(self, text: str, *, colour: str) -> str:
        return click.style(text, fg=colour) if self.has_colour else text

    def dim(self, text: str) -> str:
        return click.style(text, dim=True) if self.has_colour else text

    def bold(self, text: str) -> str:
        return click.style(text, bold=True) if self.has_colour else text


def terminal_of(stream: TextIO | None = None, *, environ: Mapping[str, str] = os.environ) -> Terminal:
    """Return the terminal of a stream. A pipe has no width of its own, so `grep` sees whole words; COLUMNS sets one."""
    stream = stream or sys.stdout
    is_tty = stream.isatty()
    can_draw = "utf" in (getattr(stream, "encoding", None) or "").lower()
    width = int(environ["COLUMNS"]) if environ.get("COLUMNS", "").isdigit() else 0
    if not width:
        width = shutil.get_terminal_size().columns if is_tty else UNLIMITED
    has_colour = is_tty and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Terminal(width, is_tty and can_draw, has_colour)


def table(headers: Sequence[str], *, rows: Sequence[Sequence[Any]], terminal: Terminal) -> list[str]:
    """Return one line per row, no wider than the terminal; a cell that is a word in LOOKS is drawn as a phase.

    The widest columns are cut first, marked with an ellipsis, then columns on the right. Where there is no width to
    fit, as in a pipe, only padding is added: `rich` takes 0.1 ms for each cell.
    """
    plain = [[printable("" if cell is None else str(cell)) for cell in row] for row in rows]
    if terminal.width == UNLIMITED and not terminal.has_colour:
        return _padded([list(headers), *plain])
    return _fitted(headers, rows=plain, terminal=terminal)


def duration(seconds: float) -> str:
    """Format a duration with at most two units: 42s, 3m 07s, 2h 05m, 4d 03h."""
    whole = max(0, int(seconds))
    for unit, size, smaller, step in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // step:02d}{smaller}"
    return f"{whole}s"


def ago(moment: datetime | None, *, now: datetime) -> str:
    return f"{duration((now - moment).total_seconds())} ago" if moment else ""


def clock(moment: datetime | None) -> str:
    """Format a time in the reader's time zone, and name the zone: pages are in UTC."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if moment else ""


def size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return ""
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def printable(text: str) -> str:
    """Return text on one line and without control characters: a job's name must not control the reader's terminal."""
    return "".join(" " if char in "\n\t" else char for char in text if char in "\n\t" or char.isprintable())


def command_line(words: Iterable[str]) -> str:
    """Return words as a shell reads them, on one line: one with a newline is written as bash's $'...'."""
    return " ".join(_ansi_c(word) if not word.isprintable() else shlex.quote(word) for word in words)


def _ansi_c(word: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
    escaped = (char if char.isprintable() else f"\\U{ord(char):08x}" for char in word)
    return "$'" + "".join(named.get(char, text) for char, text in zip(word, escaped)) + "'"


def uncoloured(text: str) -> str:
    """Return a line that a program printed without its colours."""
    return _COLOURS.sub("", text)


def inert(text: str) -> str:
    """Return a log line for a terminal: tabs stay, what could move its cursor or recolour it is shown as an escape."""
    return STEERING.sub(lambda found: _escape(found[0]), text)


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def _padded(rows: Sequence[Sequence[str]]) -> list[str]:
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows)]
    return [
        GAP.join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]


def _fitted(headers: Sequence[str], *, rows: Sequence[Sequence[str]], terminal: Terminal) -> list[str]:
    """Lay out with `rich`. Cells are `Text`, in which neither markup nor emoji codes are interpreted."""
    from rich.cells import cell_len  # 40 ms, which commands without a table do not need
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def cell(text: str) -> Text:
        symbol, colour = LOOKS.get(text, ("", ""))
        shown = f"{symbol} {text}" if symbol and terminal.has_symbols else text
        return Text(shown, style=colour, no_wrap=True, overflow="ellipsis")

    laid_out = Table(box=None, show_edge=False, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="dim")
    for header, column in zip(headers, zip(headers, *rows)):
        laid_out.add_column(cell(header), min_width=min(NARROWEST_COLUMN, max(map(cell_len, column))))
    for row in rows:
        laid_out.add_row(*map(cell, row))
    console = Console(
        file=io.StringIO(),
        width=terminal.width,
        color_system="standard" if terminal.has_colour else None,
        force_terminal=terminal.has_colour,
        no_color=not terminal.has_colour,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(laid_out)
    return [line.rstrip() for line in captured.get().split("\n")[:-1]]
