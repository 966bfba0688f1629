"""The charts of a job: what training reported, then the resource usage of its processes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.utils.safestring import SafeString

from common.text import format_bytes, format_number
from jobs.analysis import metrics, progress, rollups
from jobs.models import Job, Rank

from . import charts

SYSTEM = "system/"
SPREAD_POINTS = 120  # of each curve: charts are at most some 400 pixels wide


@dataclass(frozen=True)
class Unit:
    """How values of a kind are formatted, and the format's name in the chart script."""

    write: Callable[[float], str]
    name: str
    floor: float | None = 0


def _share(value: float) -> str:
    return f"{value * 100:.0f} %"


_NUMBER = Unit(format_number, "number", None)
# Series sampled by agents (jobs/ingest/translate.py names them): title and unit.
_SYSTEM = {
    "system/gpu": ("GPU", Unit(_share, "share")),
    "system/gpu memory": ("GPU memory", Unit(format_bytes, "bytes")),
    "system/cpu": ("CPU cores", Unit(lambda value: f"{value:.3g}", "cores")),
    "system/memory": ("Memory", Unit(format_bytes, "bytes")),
}


@dataclass(frozen=True)
class Zoom:
    """A stretch of the charts' axis: of steps, or of seconds since the first value."""

    low: float
    high: float
    by_step: bool

    def has(self, x: float) -> bool:
        return self.low <= x <= self.high


@dataclass(frozen=True)
class ChartQuery:
    """What a page's address says of its charts. `smooth`: from 0 to below 1. `other`: a job drawn beside this one."""

    page: int = 1
    pinned: Sequence[int] = ()
    failed: int | None = None  # the rank that failed first
    zoom: Zoom | None = None
    is_log: bool = False
    smooth: float = 0.0
    other: Job | None = None


ALL = ChartQuery()


@dataclass(frozen=True)
class Key:
    """An entry of a legend, and the CSS classes of its line."""

    words: str
    look: str


@dataclass(frozen=True)
class Drawn:
    """A chart ready to be shown: its title, newest value, legend and drawing."""

    title: str
    current: str
    legend: list[Key]
    svg: SafeString
    over: str


@dataclass(frozen=True)
class Drawing:
    """The charts of one page of series.

    `page` counts from 1; `first` to `last` of `total` reported series are drawn. `is_spread`: as bands over all ranks.
    """

    reported: list[Drawn] = field(default_factory=list)
    system: list[Drawn] = field(default_factory=list)
    page: int = 1
    first: int = 0
    last: int = 0
    total: int = 0
    is_spread: bool = False

    @property
    def earlier(self) -> int | None:
        return self.page - 1 if self.page > 1 else None

    @property
    def later(self) -> int | None:
        return self.page + 1 if self.last < self.total else None


def drawn(job: Job, *, attempt: int, asked: ChartQuery = ALL) -> Drawing:
    """Return at most MAX_NAMES series, including the system's.

    Up to MAX_RANKS ranks have a line each. Of more, the spread over all of them is drawn, with lines for the pinned ones
    and the worst; until the first roll-up lines of the pinned ones and of some spread evenly.
    """
    known = metrics.names(job=job, attempt=attempt)
    system = [name for name in _SYSTEM if name in known]
    reported = [name for name in known if not name.startswith(SYSTEM) and name != progress.SERIES]
    room = metrics.MAX_NAMES - len(system)
    page = max(1, min(asked.page, -(-len(reported) // room)))
    shown = reported[(page - 1) * room : page * room]
    names = [*shown, *system]
    source = _source(job, attempt, names, asked=asked)
    other = asked.other
    beside = _source(other, other.attempt, names, asked=replace(asked, pinned=())) if other else ChartValues()
    made = {name: _draw(name, source, asked, beside=beside) for name in names if source.has(name)}
    charts_by_name = {name: one for name, one in made.items() if one is not None}
    return Drawing(
        [charts_by_name[name] for name in shown if name in charts_by_name],
        [charts_by_name[name] for name in system if name in charts_by_name],
        page, (page - 1) * room + 1, (page - 1) * room + len(shown), len(reported), bool(source.spread),
    )  # fmt: skip


# -- what is drawn


@dataclass(frozen=True)
class ChartValues:
    """The values of some series of one attempt. `start`: when the first of them was reported, in seconds since the epoch."""

    start: float = 0.0
    lines: Mapping[str, list[metrics.Series]] = field(default_factory=dict)
    spread: Mapping[str, list[rollups.Bucket]] = field(default_factory=dict)
    worst: Mapping[str, list[int]] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return bool(self.lines.get(name) or self.spread.get(name))

    def by_step(self, name: str) -> bool:
        points = (step for one in self.lines.get(name, ()) for _, step, _ in one.points)
        return all(step is not None for step in (*points, *(one.step for one in self.spread.get(name, ()))))


def _source(job: Job, attempt: int, names: Sequence[str], *, asked: ChartQuery) -> ChartValues:
    start = metrics.began(job=job, attempt=attempt, names=names)
    window = _window(job, attempt, names, zoom=asked.zoom, start=start)
    of: dict[str, Any] = {"job": job, "attempt": attempt}
    whole = rollups.extent(**of, names=names) if _is_large(job, attempt) else None
    if whole is None:
        found = metrics.some_series(**of, names=names, first=asked.pinned, window=window)
        return ChartValues(start, _by_name(found))
    over = window or whole
    spread = rollups.spread(**of, names=names, window=over, points=SPREAD_POINTS)
    worst = rollups.worst(**of, names=names, window=over)
    pairs = [(name, rank) for name in spread for rank in dict.fromkeys([*asked.pinned, *worst.get(name, ())])]
    found = metrics.lines(**of, pairs=pairs, points=SPREAD_POINTS, window=window)
    rest = [name for name in names if name not in spread]
    found += metrics.some_series(**of, names=rest, first=asked.pinned, window=window) if rest else []
    return ChartValues(start, _by_name(found), spread, worst)


def _is_large(job: Job, attempt: int) -> bool:
    ranks = Rank.objects.filter(job=job, attempt=attempt).order_by()
    return len(ranks.values_list("pk")[: metrics.MAX_RANKS + 1]) > metrics.MAX_RANKS


def _window(job: Job, attempt: int, names: Sequence[str], *, zoom: Zoom | None, start: float) -> rollups.Window | None:
    """Return the time that is zoomed into; None for all of it. Steps of the last seconds are in no roll-up yet."""
    if zoom is None:
        return None
    if not zoom.by_step:
        return rollups.Window(start + zoom.low, start + zoom.high)
    return rollups.at_steps(job=job, attempt=attempt, names=names, low=int(zoom.low), high=int(zoom.high))


def _by_name(found: Iterable[metrics.Series]) -> dict[str, list[metrics.Series]]:
    by_name: dict[str, list[metrics.Series]] = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    return by_name


# -- how it is drawn


def _draw(name: str, source: ChartValues, asked: ChartQuery, *, beside: ChartValues) -> Drawn | None:
    """Return a chart; None if nothing was reported within the zoom."""
    title, unit = _SYSTEM.get(name, (name, _NUMBER))
    by_step = source.by_step(name) and (not beside.has(name) or beside.by_step(name))
    within = asked.zoom if asked.zoom and asked.zoom.by_step == by_step else None
    spread = _spread_points(source, name, by_step, within=within)
    ranks = source.lines.get(name, [])
    lines = [
        charts.Line(
            f"rank {one.rank}", _points(one, source.start, by_step, within=within), charts.look(index + bool(spread)), asked.smooth,
            _missing(one, source.start, by_step, within=within),
        )
        for index, one in enumerate(ranks)
    ]  # fmt: skip
    worst = source.worst.get(name, ())
    words = [_rank_words(one.rank, asked.failed, worst, is_first=one is ranks[0]) for one in ranks]
    keys = [Key(label, line.look) for label, line in zip(words, lines, strict=True)]
    if spread:
        median = charts.Line("median", _medians(spread), "c0 median", asked.smooth, _without_median(spread))
        lines, keys = [median, *lines], [Key("median", "c0"), *keys]
    if not any(line.points or line.missing for line in lines):
        return None
    if (other := asked.other) and beside.has(name):
        line = _main_line(name, beside, by_step, within=within)
        lines.append(charts.Line(f"job {other.pk}", line, charts.OTHER, asked.smooth))
        keys.append(Key(f"job {other.pk}, {other.name}", charts.OTHER))
    chart = charts.Chart(
        title=title, lines=lines, x_kind="step" if by_step else "time", unit=unit.write, unit_name=unit.name, floor=unit.floor,
        bands=_bands(spread), is_log=asked.is_log,
    )  # fmt: skip
    current = _current(chart, lines[0]) if spread else chart.current
    return Drawn(
        title, current, keys if len(keys) > 1 else [], charts.draw(chart), "by step" if by_step else "over time"
    )


def _current(chart: charts.Chart, median: charts.Line) -> str:
    """Return the newest median of all ranks, and which of the drawn ranks are not finite."""
    if median.nan_since is not None or not median.points:
        return chart.nan_words
    return "; ".join(filter(None, (f"median {chart.unit(median.points[-1][1])}", chart.nan_words)))


def _rank_words(rank: int, failed: int | None, worst: Sequence[int], *, is_first: bool) -> str:
    label = f"rank {rank}" if is_first else str(rank)
    if rank == failed:
        return f"{label} failed first"
    return f"{label}, the worst" if worst and rank == worst[0] else label


def _points(one: metrics.Series, start: float, by_step: bool, *, within: Zoom | None) -> list[charts.Point]:
    points = charts.points_of(one.points, start=datetime.fromtimestamp(start, UTC), by_step=by_step)
    # A clock may be a little ahead of that of the rank which began the series.
    points = points if by_step else [(max(0.0, x), y) for x, y in points]
    return [point for point in points if within is None or within.has(point[0])]


def _missing(one: metrics.Series, start: float, by_step: bool, *, within: Zoom | None) -> list[float]:
    found = charts.missing_of(one.points, start=datetime.fromtimestamp(start, UTC), by_step=by_step)
    return [max(0.0, x) if not by_step else x for x in found if within is None or within.has(x)]


def _medians(spread: Sequence[tuple[float, rollups.Bucket]]) -> list[charts.Point]:
    return [(x, bucket.median) for x, bucket in spread if bucket.median is not None]


def _without_median(spread: Sequence[tuple[float, rollups.Bucket]]) -> list[float]:
    return [x for x, bucket in spread if bucket.median is None]


def _spread_points(
    source: ChartValues, name: str, by_step: bool, *, within: Zoom | None
) -> list[tuple[float, rollups.Bucket]]:  # fmt: skip
    found = [
        (float(bucket.step) if by_step and bucket.step is not None else max(0.0, bucket.at - source.start), bucket)
        for bucket in source.spread.get(name, ())
    ]
    return [pair for pair in found if within is None or within.has(pair[0])]


def _main_line(name: str, source: ChartValues, by_step: bool, *, within: Zoom | None) -> list[charts.Point]:
    """Return the one line that stands for a whole job: its median, or of few ranks the first one's."""
    if spread := _spread_points(source, name, by_step, within=within):
        return _medians(spread)
    lines = source.lines.get(name)
    return _points(lines[0], source.start, by_step, within=within) if lines else []


def _bands(spread: Sequence[tuple[float, rollups.Bucket]]) -> list[charts.Band]:
    if not spread:
        return []
    finite = [(x, one) for x, one in spread if one.median is not None]
    outer = charts.Band([(x, one.low or 0.0, one.high or 0.0) for x, one in finite], "c0 outer")
    return [outer, charts.Band([(x, one.p5 or 0.0, one.p95 or 0.0) for x, one in finite], "c0")]
