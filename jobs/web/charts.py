"""Line charts as SVG. Pure: points in, markup out.

Widths are percentages and the text is not scaled, so one drawing is sharp at every width and nothing moves when it is
redrawn. Hovering (chart.js) inverts the axes from the data-* attributes; without it the newest value is beside the
title.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from common.text import format_number

Point = tuple[float, float]  # (step or seconds since the first point, value)
Reported = Sequence[tuple[datetime, int | None, float | None]]  # None: not finite
BOX = 1000  # the inner drawing's own units in both directions
ROWS, COLUMNS, LOG_TICKS = 3, 4, 4  # about as many ticks as there is room for
# Values are clipped to this: beyond it the width of an axis would not be finite.
LARGEST = 1e300
LEAST_LOGGED = 1e-300  # on a logarithmic axis; powers of ten below cannot be written
# A spread below these is drawn as none: it could not be distinguished from rounding, and ticks on it would coincide.
LEAST_SPREAD, LEAST_SHARE = 1e-290, 1e-9
MOST_MARKS = 8  # of places where a line is not finite
OTHER = "other"  # the look of another job's line
COLOURS = 8  # classes c0 to c7 in job.css; further lines have the same colours, dashed


@dataclass(frozen=True)
class Line:
    """`look`: CSS classes; empty for those of its number. `smooth`: from 0 to below 1, how much of what was stays.

    `missing`: where a value was reported that is not finite, in order; it is marked.
    """

    name: str
    points: Sequence[Point]
    look: str = ""
    smooth: float = 0.0
    missing: Sequence[float] = ()

    @cached_property
    def drawn(self) -> Sequence[Point]:
        return smoothed(self.points, self.smooth) if self.smooth else self.points

    @cached_property
    def nan_since(self) -> float | None:
        """Since where it has not been finite; None if its newest value is."""
        last = self.points[-1][0] if self.points else -math.inf
        return next((x for x in self.missing if x > last), None)

    @cached_property
    def gaps(self) -> list[float]:
        """Where values that are not finite begin, in order."""
        marks = sorted([(x, True) for x, _ in self.points] + [(x, False) for x in self.missing])
        was_finite, found = True, []
        for x, is_finite in marks:
            if was_finite and not is_finite:
                found.append(x)
            was_finite = is_finite
        return found


@dataclass(frozen=True)
class Band:
    """An area between two curves: (step or seconds, lower value, upper value)."""

    points: Sequence[tuple[float, float, float]]
    look: str


@dataclass(frozen=True)
class Axis:
    """A range and its ticks, which lie on round numbers inside it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies, 0 to 1. On a logarithmic axis, what is not above 0 lies at its lower end."""
        if self.is_log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Chart:
    title: str
    lines: Sequence[Line]
    x_kind: str = "step"  # or "time": seconds since the first point
    unit: Callable[[float], str] = format_number
    unit_name: str = "number"  # chart.js's name of the same format
    floor: float | None = None  # the value axis begins here or lower: 0 for amounts
    bands: Sequence[Band] = ()
    is_log: bool = False

    @property
    def _own(self) -> list[Line]:
        """The lines without that of another job, which is drawn beside them."""
        return [line for line in self.lines if line.look != OTHER]

    @property
    def current(self) -> str:
        newest = [line.points[-1][1] for line in self._own if line.points and line.nan_since is None]
        span = self.unit(newest[0]) if len(newest) == 1 else _span(newest, self.unit)
        return "; ".join(filter(None, (span, self.nan_words)))

    @property
    def nan_words(self) -> str:
        """Return "NaN since step 20", of some of its lines with their names; empty if all are finite."""
        odd = [(line.nan_since, line.name) for line in self._own if line.nan_since is not None]
        if not odd:
            return ""
        since = x_words(min(x for x, _ in odd), self.x_kind)
        words = f"NaN since {'step ' if self.x_kind == 'step' else ''}{since}"
        return words if len(odd) == len(self._own) else f"{words} on {', '.join(name for _, name in odd)}"


def axis(values: Sequence[float], *, floor: float | None = None, is_binary: bool = False) -> Axis:
    """Return the smallest range that shows all values and starts and ends on a tick.

    Needs at least one finite value.
    """
    low, high = min(values), max(values)
    low = min(low, floor) if floor is not None else low
    if _is_flat(low, high):
        low, high = (low - _pad(low), high + _pad(high)) if floor is None or low > floor else (low, high + _pad(high))
    rough = (high - low) / ROWS
    scale = 1024.0 ** max(0, math.floor(math.log(rough, 1024))) if is_binary else 1.0
    step = nice_step(rough / scale) * scale
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Axis(first * step, last * step, tuple(_clean(index * step) for index in range(first, last + 1)))


def log_axis(values: Sequence[float]) -> Axis | None:
    """Return the smallest range of powers of ten that shows all values above 0; None if there is none."""
    shown = [value for value in values if value >= LEAST_LOGGED]
    if not shown:
        return None
    first, last = math.floor(math.log10(min(shown)) + 1e-9), math.ceil(math.log10(max(shown)) - 1e-9)
    last = max(last, first + 1)
    step = math.ceil((last - first) / LOG_TICKS)
    return Axis(10.0**first, 10.0**last, tuple(10.0**power for power in range(first, last + 1, step)), is_log=True)


def smoothed(points: Sequence[Point], weight: float) -> list[Point]:
    """Return the exponential moving average, without the pull towards 0 that it has at its beginning."""
    made, mean, share = list[Point](), 0.0, 0.0
    for x, y in points:
        mean, share = weight * mean + (1 - weight) * y, weight * share + (1 - weight)
        made.append((x, mean / share))
    return made


def tight_axis(values: Sequence[float], *, is_time: bool = False) -> Axis:
    """Return an axis with ticks on round numbers whose range ends where the data ends: for time and steps."""
    low, high = min(values), max(values)
    if _is_flat(low, high):
        high = low + _pad(low)
    rough = (high - low) / COLUMNS
    step = time_step(rough) if is_time else max(1.0, nice_step(rough))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, tuple(_clean(index * step) for index in range(first, last + 1)))


def _is_flat(low: float, high: float) -> bool:
    return high - low < LEAST_SPREAD or high - low <= LEAST_SHARE * max(abs(low), abs(high))


def _pad(value: float) -> float:
    """Return how far an axis extends beyond values that are all the same, so that it can be divided."""
    return abs(value) if LEAST_SPREAD <= abs(value) < 1 else max(1.0, 1e-6 * abs(value))


def nice_step(rough: float) -> float:
    """Return the smallest of 1, 2, 2.5 or 5 times a power of ten that is not below `rough`."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))


_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def time_step(rough: float) -> float:
    """Return the same for seconds: clock-friendly steps, then whole days."""
    return next((float(step) for step in _TIME_STEPS if step >= rough), 86400.0 * math.ceil(nice_step(rough / 86400)))


def points_of(series: Reported, *, start: datetime, by_step: bool) -> list[Point]:
    """Return the drawable points of a series: finite values, over steps or over seconds since `start`."""
    placed = _placed(series, start=start, by_step=by_step)
    return [(x, max(-LARGEST, min(value, LARGEST))) for x, value in placed if value is not None]


def missing_of(series: Reported, *, start: datetime, by_step: bool) -> list[float]:
    """Return where a series has values that are not finite, in order."""
    return sorted(x for x, value in _placed(series, start=start, by_step=by_step) if value is None)


def _placed(series: Reported, *, start: datetime, by_step: bool) -> list[tuple[float, float | None]]:
    return [
        (
            float(step) if by_step and step is not None else (at - start).total_seconds(),
            value if value is not None and math.isfinite(value) else None,
        )
        for at, step, value in series
        if not by_step or step is not None
    ]


def draw(chart: Chart) -> SafeString:
    """Return the SVG element, or an empty one labelled that there are no values yet."""
    drawn = [line for line in chart.lines if line.points]
    bands = [band for band in chart.bands if band.points]
    if not drawn:
        words = f"{chart.title}: {chart.nan_words}" if chart.nan_words else "no values yet"
        return format_html('<svg class="chart" role="img" aria-label="{}"></svg>', words)
    xs = [x for line in drawn for x, _ in line.points] + [x for band in bands for x, *_ in band.points]
    xs += [x for line in chart.lines for x in line.missing]
    ys = [y for line in drawn for _, y in line.points] + [y for band in bands for _, *both in band.points for y in both]
    across = tight_axis(xs, is_time=chart.x_kind == "time")
    linear = axis(ys, floor=chart.floor, is_binary=chart.unit_name == "bytes")
    up = (log_axis(ys) if chart.is_log else None) or linear
    return format_html(
        '<svg class="chart" role="img" aria-label="{}" data-x="{}" data-unit="{}" data-x0="{}" data-x1="{}" data-y0="{}"'
        ' data-y1="{}"{}>{}{}<svg class="curves" viewBox="0 0 {box} {box}" preserveAspectRatio="none">{}{}</svg>{}{}</svg>',
        _spoken(chart, drawn),
        chart.x_kind,
        chart.unit_name,
        across.low,
        across.high,
        up.low,
        up.high,
        mark_safe(' data-scale="log"') if up.is_log else "",
        _rows(up, chart.unit),
        _columns(across, chart.x_kind),
        _areas(bands, across, up),
        _curves(drawn, across, up),
        _ends(drawn, across, up),
        _odd(chart.lines, across),
        box=BOX,
    )


def _areas(bands: Sequence[Band], across: Axis, up: Axis) -> SafeString:
    return format_html_join(
        "",
        '<polygon class="band-area {}" points="{}"/>',
        (
            (
                band.look,
                f"{_path([(x, low) for x, low, _ in band.points], across, up)} "
                f"{_path([(x, high) for x, _, high in reversed(band.points)], across, up)}",
            )
            for band in bands
        ),
    )


def look(index: int) -> str:
    """Return the CSS classes of the line with this number, in the drawing and in its legend."""
    return f"c{index % COLOURS}" + (" dashed" if index % (2 * COLOURS) >= COLOURS else "")


def _curves(lines: Sequence[Line], across: Axis, up: Axis) -> SafeString:
    """Draw the lines; a smoothed one over a faint one of what was reported."""
    drawn = []
    for index, line in enumerate(lines):
        classes = line.look or look(index)
        if line.smooth:
            drawn.append((f"raw {classes}", "", _path(line.points, across, up)))
        drawn.append((f"line {classes}", line.name, _path(line.drawn, across, up)))
    return format_html_join("", '<polyline class="{}" data-name="{}" points="{}"/>', drawn)


def _path(points: Sequence[Point], across: Axis, up: Axis) -> str:
    return " ".join(f"{across.place(x) * BOX:.1f},{(1 - up.place(y)) * BOX:.2f}" for x, y in points)


def _ends(lines: Sequence[Line], across: Axis, up: Axis) -> SafeString:
    """Draw a dot on the newest value, which also shows a series of a single point."""
    return format_html_join(
        "",
        '<circle class="end {}" r="3" cx="{}%" cy="{}%"/>',
        (
            (
                line.look or f"c{index % COLOURS}",
                f"{across.place(line.points[-1][0]) * 100:.2f}",
                f"{(1 - up.place(line.drawn[-1][1])) * 100:.2f}",
            )
            for index, line in enumerate(lines)
        ),
    )


def _odd(lines: Sequence[Line], across: Axis) -> SafeString:
    """Mark where lines are not finite: a loss that becomes NaN has no point to draw."""
    begins = sorted({f"{across.place(x) * 100:.2f}" for line in lines for x in line.gaps[-MOST_MARKS:]}, key=float)
    return format_html_join(
        "",
        '<line class="nan" x1="{0}%" x2="{0}%" y1="0" y2="100%"/><text class="nan" x="{0}%" y="0" dx="{1}" dy="9"'
        ' text-anchor="{2}">NaN</text>',
        ((place, *((-4, "end") if float(place) > 80 else (4, "start"))) for place in begins[-MOST_MARKS:]),
    )


def _rows(up: Axis, unit: Callable[[float], str]) -> SafeString:
    return format_html_join(
        "",
        '<line class="grid" x1="0" x2="100%" y1="{0}%" y2="{0}%"/><text class="up" x="-8" y="{0}%" dy="3.5">{1}</text>',
        ((f"{(1 - up.place(tick)) * 100:.2f}", unit(tick)) for tick in up.ticks),
    )


def _columns(across: Axis, kind: str) -> SafeString:
    return format_html_join(
        "",
        '<text class="across{}" x="{}%" y="100%" dy="17">{}</text>',
        ((_edge(across.place(tick)), f"{across.place(tick) * 100:.2f}", x_words(tick, kind)) for tick in across.ticks),
    )


def _edge(place: float) -> str:
    """Return the class that aligns labels at the ends inwards, so that none is cut off."""
    return " first" if place < 0.03 else " last" if place > 0.97 else ""


def x_words(value: float, kind: str) -> str:
    if kind == "step":
        return f"{value:,.0f}" if value == int(value) else ""
    days, hours, minutes = int(value // 86400), int(value // 3600), round(value % 3600 / 60)
    if days:
        return f"{days} d" if value % 86400 == 0 else f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes:02d}" if minutes else f"{hours} h"
    return f"{value:.0f} s" if value % 60 or not value else f"{minutes} min"


def _spoken(chart: Chart, lines: Sequence[Line]) -> str:
    values = [y for line in lines for _, y in line.points]
    return (
        f"{chart.title}: now {chart.current}, lowest {chart.unit(min(values))}, highest {chart.unit(max(values))}, "
        f"{len(lines)} line{'s' if len(lines) > 1 else ''}"
    )


def _span(values: Sequence[float], unit: Callable[[float], str]) -> str:
    if not values:
        return ""
    low, high = unit(min(values)), unit(max(values))
    return low if low == high else f"{low} to {high}"


def _clean(value: float) -> float:
    return float(f"{value:.12g}")


__all__ = [
    "Axis",
    "Band",
    "Chart",
    "Line",
    "Reported",
    "axis",
    "draw",
    "log_axis",
    "look",
    "missing_of",
    "nice_step",
    "points_of",
    "smoothed",
    "tight_axis",
    "time_step",
    "x_words",
]
