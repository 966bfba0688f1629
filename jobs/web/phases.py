"""The bar of phases: which phases a job went through and how long each took. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.core.lifecycle import TERMINAL, Phase

from . import appearance

LEAST_SHARE = 1.5  # percent: even a phase of milliseconds is visible
SHOWN = 8  # legs; of a longer history the newest


@dataclass(frozen=True)
class Leg:
    """A stay in one phase. `until` is None for the current phase."""

    phase: Phase
    since: datetime
    until: datetime | None
    attempt: int = 0

    @property
    def look(self) -> appearance.Look:
        return appearance.PHASES[self.phase]


@dataclass(frozen=True)
class Slice:
    """A leg with its position in the bar, in percent."""

    leg: Leg
    x: str
    width: str


def legs(steps: Iterable[tuple[Phase, datetime, int]]) -> list[Leg]:
    """Return stays from the recorded steps (phase entered, when, attempt), oldest first.

    A terminal phase is no stay.
    """
    entered = list(steps)
    following = [*(at for _, at, _ in entered[1:]), None][: len(entered)]
    return [
        Leg(phase, since, until, attempt)
        for (phase, since, attempt), until in zip(entered, following, strict=True)
        if phase not in TERMINAL
    ]


def bar(stays: Sequence[Leg], *, now: datetime) -> list[Slice]:
    """Return each leg's position: proportional to its time, but never too narrow to see."""
    stays = stays[-SHOWN:]
    seconds = [max(0.0, ((leg.until or now) - leg.since).total_seconds()) for leg in stays]
    total = sum(seconds) or 1.0
    widths = [max(LEAST_SHARE, 100 * one / total) for one in seconds]
    scale = 100 / (sum(widths) or 1.0)
    places, x = [], 0.0
    for leg, width in zip(stays, widths, strict=True):
        places.append(Slice(leg, f"{x:.2f}", f"{width * scale:.2f}"))
        x += width * scale
    return places
