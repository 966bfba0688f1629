"""Terminal output: tables that fit the width, phases, durations. Plain text for pipes and files."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TextIO

import click

NARROWEST_COLUMN = 6
GAP = "  "
UNLIMITED = 10**6

# Control characters except the tab, marks that reorder text, Unicode line separators, surrogates.
STEERING = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

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
    """Return lines no wider than the terminal: the widest columns are cut first, marked with an ellipsis.

    Cells may carry colour. The column of a word in LOOKS is drawn as a phase.
    """
    plain = [[printable(_text(cell)) for cell in row] for row in rows]
    drawn = [[_symbolled(cell, terminal=terminal) for cell in row] for row in plain]
    widths = _widths([list(headers), *drawn], limit=terminal.width)
    lines = [terminal.dim(_line(headers, widths=widths, terminal=terminal))]
    for texts, cells in zip(plain, drawn):
        colours = [LOOKS[text][1] if text in LOOKS else "" for text in texts]
        lines.append(_line(cells, widths=widths, terminal=terminal, colours=colours))
    return lines


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
    """Format a time in the reader's time zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""


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


def inert(text: str) -> str:
    """Return a log line for a terminal: tabs stay, what could move its cursor or recolour it is shown as an escape."""
    return STEERING.sub(lambda found: _escape(found[0]), text)


def columns(text: str) -> int:
    """Return the columns on screen: East Asian wide characters take two, combining ones none."""
    return sum(_columns(char) for char in text)


def shortened(text: str, *, width: int) -> str:
    if columns(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        used += _columns(char)
        if used > width - 1:
            break
        kept += char
    return kept + "…" if width > 0 else ""


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _symbolled(text: str, *, terminal: Terminal) -> str:
    return f"{LOOKS[text][0]} {text}" if terminal.has_symbols and text in LOOKS else text


def _widths(rows: Sequence[Sequence[str]], *, limit: int) -> list[int]:
    widths = [max(columns(cell) for cell in column) for column in zip(*rows)]
    room = limit - len(GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > NARROWEST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _line(cells: Sequence[str], *, widths: Sequence[int], terminal: Terminal, colours: Sequence[str] = ()) -> str:
    """Return a line padded to its columns; what does not fit a very narrow terminal is cut, last columns first."""
    room, pieces = terminal.width, []
    for at, (cell, width) in enumerate(zip(cells, widths)):
        text = shortened(cell, width=min(width, room))
        is_last = at == len(widths) - 1
        padded = text if is_last else text + " " * min(width - columns(text), max(room - columns(text), 0))
        colour = colours[at] if at < len(colours) else ""
        pieces.append(terminal.coloured(padded, colour=colour) if colour else padded)
        room -= width + len(GAP)
        if room <= 0:
            break
    return GAP.join(pieces).rstrip()
