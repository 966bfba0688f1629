"""How facts look to a person: words, tones and shapes, each in one table. Pure; times come in as arguments."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from statistics import median_low
from typing import Protocol

from jobs.core.lifecycle import Phase


@dataclass(frozen=True)
class Look:
    """One state as people see it. `tone` is a CSS class, `shape` an icon: colour is never the only sign."""

    word: str
    tone: str
    shape: str


PHASES = {
    Phase.QUEUED: Look("Queued", "wait", "ring"),
    Phase.ADMITTED: Look("Admitted", "wait", "half"),
    Phase.STARTING: Look("Starting", "run", "half"),
    Phase.RUNNING: Look("Running", "run", "disc"),
    Phase.STOPPING: Look("Stopping", "warn", "square"),
    Phase.SUSPENDED: Look("Suspended", "idle", "pause"),
    Phase.SUCCEEDED: Look("Succeeded", "ok", "check"),
    Phase.FAILED: Look("Failed", "bad", "cross"),
    Phase.CANCELLED: Look("Cancelled", "idle", "slash"),
}
RANKS = {
    "waiting": Look("Waiting", "wait", "ring"),
    "running": Look("Running", "run", "disc"),
    "succeeded": Look("Done", "ok", "check"),
    "failed": Look("Failed", "bad", "cross"),
    "stopped": Look("Stopped", "idle", "square"),  # its launcher ended it; it is not the cause
    "unseen": Look("Not seen", "idle", "ring"),  # its replica is over, and nobody announced this rank
    "behind": Look("Behind", "warn", "triangle"),
}


def retries_used(failures: int, *, has_failed: bool) -> int:
    """How many failures were answered with another attempt: all but the one that ended the job."""
    return max(0, failures - has_failed)


def duration(seconds: float | None) -> str:
    """ "0 s", "38 s", "6 min 02 s", "2 h 07 min", "3 d 4 h". ui.js counts on in the same form."""
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


def size(count: float | None) -> str:
    """Bytes in binary units, three digits at most: "812 MiB", "1.5 GiB"."""
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def number(value: float) -> str:
    """A measured value with four significant digits, never longer than needed: "2.112", "0.00029", "1.2e-07"."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)  # the last two ranges reorder text


def plain(text: str) -> str:
    """A log line without terminal colours and tricks; of a redrawn progress bar its last state."""
    return _CONTROL.sub("", _ANSI.sub("", text).rstrip("\r").rpartition("\r")[2])


# The same in UTF-8; a lead byte never occurs inside another character, so bytes may be compared.
_CONTROL_BYTES = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)


def inert(page: bytes) -> bytes:
    """A rendered page without characters that steer a terminal or reorder what is read, wherever they came from.

    Templates escape what HTML would act on. These survive escaping: in a command, a reason, the name of a metric.
    """
    return _CONTROL_BYTES.sub(b"", page)


_ERROR = re.compile(r"\b(error|exception|traceback|fatal|critical|panic)\b|Error\b", re.IGNORECASE)
_WARNING = re.compile(r"\bwarn(ing)?\b|Warning\b", re.IGNORECASE)


def severity(text: str) -> str:
    """A CSS class for a log line: "e", "w" or nothing. A guess from its words, used for colour only."""
    if _ERROR.search(text):
        return "e"
    return "w" if _WARNING.search(text) else ""


class Stepping(Protocol):
    rank: int
    state: str
    step: int | None
    started_at: datetime | None


PATIENCE_SECONDS = 4.0  # agents report about once a second; a rank this far behind is late, not just reported later
LEAST_LAG = 2


def lagging(ranks: Iterable[Stepping], now: datetime) -> dict[int, int]:
    """{rank: steps behind the median} of the running ranks that are further behind than reporting explains."""
    running = [one for one in ranks if one.state == "running" and one.step is not None]
    if len(running) < 2:
        return {}
    middle = median_low(one.step for one in running if one.step is not None)
    starts = [one.started_at for one in running if one.started_at]
    elapsed = max(1.0, (now - min(starts)).total_seconds()) if starts else 1.0
    allowed = max(LEAST_LAG, middle / elapsed * PATIENCE_SECONDS) if starts else LEAST_LAG
    return {one.rank: middle - one.step for one in running if one.step is not None and middle - one.step > allowed}
