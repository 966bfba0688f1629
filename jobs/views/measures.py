"""The charts of a job: what training reported, then what its processes used."""

from collections.abc import Callable
from dataclasses import dataclass

from django.utils.safestring import SafeString

from jobs import charts, metrics, present
from jobs.models import Job

SYSTEM = "system/"
MAX_LINES = charts.COLOURS
MAX_CHARTS = 24


@dataclass(frozen=True)
class Unit:
    """How values of a kind are written, and what the chart script calls it."""

    write: Callable[[float], str]
    name: str
    floor: float | None = 0


def _share(value: float) -> str:
    return f"{value * 100:.0f} %"


_NUMBER = Unit(present.number, "number", None)
# What agents sample (jobs/ingest.py names the series): title and unit.
_SYSTEM = {
    "system/gpu": ("GPU", Unit(_share, "share")),
    "system/gpu memory": ("GPU memory", Unit(present.size, "bytes")),
    "system/cpu": ("CPU cores", Unit(lambda value: f"{value:.3g}", "cores")),
    "system/memory": ("Memory", Unit(present.size, "bytes")),
}


@dataclass(frozen=True)
class Drawn:
    """A chart ready to be shown: its title, newest value, legend and drawing."""

    title: str
    current: str
    legend: list[str]
    svg: SafeString
    over: str
    note: str = ""


def drawn(job: Job) -> tuple[list[Drawn], list[Drawn]]:
    """(reported metrics, system samples), each in order of name. One query."""
    by_name: dict[str, list[metrics.Series]] = {}
    for one in metrics.series(job=job):
        by_name.setdefault(one.name, []).append(one)
    reported = [name for name in by_name if not name.startswith(SYSTEM)][:MAX_CHARTS]
    system = [name for name in _SYSTEM if name in by_name]
    return [_draw(name, by_name[name]) for name in reported], [_draw(name, by_name[name]) for name in system]


def _draw(name: str, series: list[metrics.Series]) -> Drawn:
    title, unit = _SYSTEM.get(name, (name, _NUMBER))
    shown = series[:MAX_LINES]
    by_step = all(step is not None for one in shown for _, step, _ in one.points)
    start = min(one.points[0][0] for one in shown)
    chart = charts.Chart(
        title=title,
        lines=[
            charts.Line(f"rank {one.rank}", charts.points_of(one.points, start=start, by_step=by_step)) for one in shown
        ],
        x_kind="step" if by_step else "time",
        unit=unit.write,
        unit_name=unit.name,
        floor=unit.floor,
    )
    legend = [line.name for line in chart.lines] if len(series) > 1 else []
    note = f"the first {MAX_LINES} of {len(series)} ranks" if len(series) > MAX_LINES else ""
    return Drawn(chart.title, chart.current, legend, charts.draw(chart), "by step" if by_step else "over time", note)
