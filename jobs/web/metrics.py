"""The charts of a job: what training reported, then the resource usage of its processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django.utils.safestring import SafeString

from common.text import format_bytes, format_number
from jobs.analysis import metrics, progress
from jobs.models import Job

from . import charts

SYSTEM = "system/"


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
class Key:
    """An entry of a legend: a rank, and the CSS classes of its line."""

    rank: int
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

    `page` counts from 1; `first` to `last` of `total` reported series are drawn.
    """

    reported: list[Drawn] = field(default_factory=list)
    system: list[Drawn] = field(default_factory=list)
    page: int = 1
    first: int = 0
    last: int = 0
    total: int = 0

    @property
    def earlier(self) -> int | None:
        return self.page - 1 if self.page > 1 else None

    @property
    def later(self) -> int | None:
        return self.page + 1 if self.last < self.total else None


def drawn(job: Job, *, attempt: int, first: Sequence[int] = (), page: int = 1) -> Drawing:
    """Return at most MAX_NAMES series, including the system's, of at most MAX_RANKS ranks each.

    Ranks in `first` take precedence.
    """
    known = metrics.names(job=job, attempt=attempt)
    system = [name for name in _SYSTEM if name in known]
    reported = [name for name in known if not name.startswith(SYSTEM) and name != progress.SERIES]
    room = metrics.MAX_NAMES - len(system)
    page = max(1, min(page, -(-len(reported) // room)))
    shown = reported[(page - 1) * room : page * room]
    by_name: dict[str, list[metrics.Series]] = {}
    for one in metrics.some_series(job=job, attempt=attempt, names=[*shown, *system], first=first):
        by_name.setdefault(one.name, []).append(one)
    return Drawing(
        [_draw(name, by_name[name]) for name in shown if name in by_name],
        [_draw(name, by_name[name]) for name in system if name in by_name],
        page, (page - 1) * room + 1, (page - 1) * room + len(shown), len(reported),
    )  # fmt: skip


def _draw(name: str, series: list[metrics.Series]) -> Drawn:
    title, unit = _SYSTEM.get(name, (name, _NUMBER))
    by_step = all(step is not None for one in series for _, step, _ in one.points)
    start = min(one.points[0][0] for one in series)
    chart = charts.Chart(
        title=title,
        lines=[
            charts.Line(f"rank {one.rank}", charts.points_of(one.points, start=start, by_step=by_step))
            for one in series
        ],
        x_kind="step" if by_step else "time",
        unit=unit.write,
        unit_name=unit.name,
        floor=unit.floor,
    )
    legend = [Key(one.rank, charts.look(index)) for index, one in enumerate(series)] if len(series) > 1 else []
    return Drawn(chart.title, chart.current, legend, charts.draw(chart), "by step" if by_step else "over time")
