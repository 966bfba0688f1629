"""Format values as text for people, for pages, API and messages alike, and strip terminal control characters. Pure."""

import re
from collections.abc import Sequence


def format_duration(seconds: float | None) -> str:
    """Format a duration: "0 s", "38 s", "6 min 02 s", "2 h 07 min", "3 d 4 h". ui.js counts on in the same form."""
    if seconds is None:
        return ""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 1:
        return f"{whole} s"
    if hours < 1:
        return f"{minutes} min {whole % 60:02d} s"
    if days < 1:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{days} d {hours % 24} h"


def format_bytes(count: float | None) -> str:
    """Format bytes in binary units, with at most three digits: "812 MiB", "1.5 GiB"."""
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def listed(names: Sequence[str], most: int) -> str:
    """Return "a, b and 3 more", or all of them: "a, b"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nodes_listed(names: Sequence[str], most: int) -> str:
    """Return "node a", "nodes a and b", or "nodes a, b and 3 more"."""
    words = listed(names, most) if len(names) > most else " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{'node' if len(names) == 1 else 'nodes'} {words}"


def format_number(value: float) -> str:
    """Format a measured value with four significant digits, no longer than needed: "2.112", "0.00029", "1.2e-07"."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])")
# Ranges for a character class. Those of the second begin a line or reorder text.
CONTROL = r"\x00-\x1f\x7f-\x9f"
REORDERING = r"\u2028-\u202e\u2066-\u2069"
SURROGATES = r"\ud800-\udfff"  # halves of a character, which no UTF-8 text contains and no database stores
_STEERING = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{REORDERING}]")  # a tab and a newline may stay


def plain(text: str) -> str:
    """Return a log line without terminal colours and control sequences; of a redrawn progress bar, its last state."""
    return _STEERING.sub("", _ANSI.sub("", text).rstrip("\r").rpartition("\r")[2])


# The same in UTF-8; a lead byte never occurs inside another character, so bytes may be compared.
_CONTROL_BYTES = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)


def inert(page: bytes) -> bytes:
    """Return a rendered page without characters that control a terminal or reorder text, wherever they came from.

    Templates escape what HTML would interpret. These survive escaping: in a command, a reason, the name of a metric.
    """
    return _CONTROL_BYTES.sub(b"", page)
