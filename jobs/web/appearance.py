"""How states look to users: words, tones and shapes, each in one table. Pure; times are arguments."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median_low
from typing import Protocol

from jobs.core.lifecycle import Phase


@dataclass(frozen=True)
class Look:
    """One state as displayed. `tone` is a CSS class, `shape` an icon: colour is never the only sign."""

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
IMPORTING = Look("Importing", "run", "half")  # all replicas run, and no rank yet
RANKS = {
    "waiting": Look("Waiting", "wait", "ring"),
    "running": Look("Running", "run", "disc"),
    "succeeded": Look("Done", "ok", "check"),
    "failed": Look("Failed", "bad", "cross"),
    "stopped": Look("Stopped", "idle", "square"),  # its launcher ended it; it is not the cause
    "unseen": Look("Not seen", "idle", "ring"),  # its replica is over, and this rank was never reported
    "behind": Look("Behind", "warn", "triangle"),
    "silent": Look("Silent", "warn", "clock"),
}


REPLICAS = {
    "absent": Look("Not created", "wait", "ring"),
    "pending": Look("Waiting", "wait", "ring"),
    "running": RANKS["running"],
    "succeeded": RANKS["succeeded"],
    "failed": RANKS["failed"],
    "lost": Look("Lost", "bad", "cross"),
}
MAY_COME = Look("May come", "idle may-come", "ring")  # a place of an elastic role, beyond its minimum


def retries_used(failures: int, *, has_failed: bool) -> int:
    """Return how many failures were followed by another attempt: all but the one that ended the job."""
    return max(0, failures - has_failed)


# A metric of that name is no error: "error=0.98", "test error: 0.031".
_ERROR = re.compile(
    r"\b(?i:error|exception|traceback|fatal|critical|panic)\b(?!\s*=\s*[-+.\d]|\s*:\s*[-+]?\d*\.\d)|[A-Za-z]Error\b(?!=)"
)
_WARNING = re.compile(r"\b(?i:warn(?:ing)?)\b|[A-Za-z]Warning\b")


def severity(text: str) -> str:
    """Return a CSS class for a log line: "e", "w" or "". A guess from its words, used for colour only."""
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
    """Return {rank: steps behind the median} for running ranks further behind than reporting delays explain."""
    running = [one for one in ranks if one.state == "running" and one.step is not None]
    starts = [one.started_at for one in running if one.started_at]
    steps = {one.rank: one.step for one in running if one.step is not None}
    return behind(steps, began=min(starts, default=None), now=now)


def behind(steps: Mapping[int, int], *, began: datetime | None, now: datetime) -> dict[int, int]:
    """Return the same from the steps of running ranks, by rank, the first of which began to run at `began`."""
    if len(steps) < 2:
        return {}
    middle = median_low(steps.values())
    allowed: float = LEAST_LAG
    if began is not None:
        allowed = max(allowed, middle / max(1.0, (now - began).total_seconds()) * PATIENCE_SECONDS)
    return {rank: middle - step for rank, step in steps.items() if middle - step > allowed}
