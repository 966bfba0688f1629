"""/usage: hours times slots that teams, queues, users or jobs used, by day as bars, and as CSV."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from common.errors import InvalidInput
from jobs.models import Job
from jobs.scheduling import hours, usage_report
from jobs.scheduling.usage_report import Ask, Row
from queues.models import Resource
from queues.readable import readable_queues

from .responses import HtmxRequest, answer

NAMED = 7  # with a colour of their own; the others are one
SHOWN = 200  # rows of the table
OTHERS = "others"


@dataclass(frozen=True)
class Piece:
    """A part of a day's bar, in percent of the drawing. `look`: a class of colours."""

    y: float
    height: float
    look: str
    title: str


@dataclass(frozen=True)
class Bar:
    x: float
    width: float
    day: datetime
    pieces: list[Piece]


@dataclass
class Usage:
    """Of one resource: its rows, their sums, and a bar for each day.

    `most`: the hours of the highest bar; `kept`: the jobs among the rows that have a page, since they were not removed.
    """

    resource: str
    rows: list[Row] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)
    most: float = 0.0
    kept: frozenset[int] = frozenset()

    @property
    def unit(self) -> str:
        return {"gpu": "GPU hours"}.get(self.resource, f"{Resource(self.resource).label[:-1]} hours")

    @property
    def hours(self) -> float:
        return sum(one.hours for one in self.rows)

    @property
    def lost(self) -> float:
        return sum(one.lost for one in self.rows)

    @property
    def starting(self) -> float:
        return sum(one.starting for one in self.rows)

    @property
    def idle(self) -> float:
        return sum(one.idle for one in self.rows)

    @property
    def shown(self) -> list[tuple[Row, float]]:
        """The first rows, each with its part of the sum in percent."""
        whole = self.hours or 1.0
        return [(one, 100 * one.hours / whole) for one in self.rows[:SHOWN]]


@login_required
@require_safe
def page(request: HtmxRequest) -> HttpResponse:
    now, given = timezone.now(), request.GET.dict()
    teams = sorted({queue.team.name for queue in readable_queues(request.user)})
    common = {"teams": teams, "ways": hours.BY, "given": given, "months": _months(now)}
    try:
        ask = usage_report.read(given, now=now)
        rows = usage_report.report(replace(ask, by_day=False), reader=request.user, now=now)
        # Bars of thousands of jobs would say nothing: they are drawn by user.
        drawn = replace(ask, by_day=True, by="user" if ask.by == "job" else ask.by)
        days = usage_report.report(drawn, reader=request.user, now=now)
    except InvalidInput as error:
        wrong = [f"{one.field.capitalize()} {one.message}." for one in error.problems]
        return answer(request, template="jobs/usage.html", context={**common, "wrong": wrong}, status=422)
    found = [
        usage_of(
            resource,
            [one for one in rows if one.resource == resource],
            [one for one in days if one.resource == resource],
            ask,
        )
        for resource in sorted({one.resource for one in rows}, reverse=True)
    ]
    jobs = [row.job for one in found for row, _ in one.shown if row.job]
    kept = frozenset(Job.objects.filter(pk__in=jobs).order_by().values_list("pk", flat=True)) if jobs else frozenset()
    for one in found:
        one.kept = kept
    last = ask.until - timedelta(days=1)
    return answer(request, template="jobs/usage.html", context={**common, "ask": ask, "last": last, "found": found})


@login_required
@require_safe
def table(request: HtmxRequest) -> HttpResponse:
    """Answer with the rows as CSV; the same parameters as the page's, and `step=day`."""
    now = timezone.now()
    try:
        ask = usage_report.read(request.GET.dict(), now=now)
        rows = usage_report.report(ask, reader=request.user, now=now)
    except InvalidInput:
        return page(request)  # which says what is wrong
    response = HttpResponse(usage_report.as_csv(rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="usage-{ask.by}-{ask.since:%Y-%m-%d}.csv"'
    return response


def usage_of(resource: str, rows: list[Row], days: Sequence[Row], ask: Ask) -> Usage:
    """Return what is shown of one resource; `days` have a sum for each day."""
    sums: dict[str, float] = defaultdict(float)
    by_day: dict[datetime, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for one in days:
        sums[_name(one)] += one.hours
    named = sorted(sums, key=lambda name: (-sums[name], name))[:NAMED]
    for one in days:
        by_day[one.begins][_name(one) if _name(one) in named else OTHERS] += one.hours
    most = max((sum(parts.values()) for parts in by_day.values()), default=0.0)
    looks = {name: f"c{number}" for number, name in enumerate(named)}
    if len(sums) > len(named):
        looks[OTHERS] = "c-others"
    count = max(1, (ask.until - ask.since).days)
    bars = []
    for number in range(count):
        day, top, pieces = ask.since + timedelta(days=number), 100.0, []
        for name, look in looks.items():
            if used := by_day[day].get(name, 0.0):
                height = 100 * used / most
                top -= height
                pieces.append(Piece(top, height, look, f"{day:%-d %b}: {name} {used:,.1f} h"))
        bars.append(Bar(100 * number / count, 80 / count, day, pieces))
    return Usage(resource, rows, bars, list(looks.items()), most)


def _name(one: Row) -> str:
    return one.user or one.queue or one.team


def _months(now: datetime) -> list[tuple[str, str, str]]:
    """Return links to this month and the last one: their words, first day and the day after the last."""
    this = hours.month_of(now)
    last = hours.month_of(this - timedelta(days=1))
    return [(f"{one:%B}", f"{one:%Y-%m-%d}", f"{hours.after(one):%Y-%m-%d}") for one in (this, last)]
