"""All ranks of a large job at once: a drawing with a cell for each, in tiles of one replica, and in words those that matter.

Ten thousand cells as HTML would be megabytes. As one path for each state, whose cells differ little from each other, they
compress to a few kilobytes and scale to the width that there is. static/map.js finds the rank under the pointer.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property, lru_cache
from statistics import median_low
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg, StringAgg
from django.db.models import Case, CharField, Count, Min, Q, QuerySet, Value, When
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from common.text import format_duration
from jobs.analysis import failures
from jobs.core.silence import IDLE
from jobs.core.verdict import ENDED, RoleView
from jobs.models import Job, Rank, RankState, Replica

from . import appearance
from .concerns import Needs, is_silent, needs_attention, reasons, unexpected

UNIT, GAP = 8, 4  # of a cell with its margin, and between tiles, in units of the drawing
SHAPE_RATIO = 1.3  # width to height of the whole drawing
# What a cell looks like, drawn from its upper left corner and back to it: the state shows in shape as well as colour.
_SHAPES = {
    "run": "h7v7h-7z",
    "ok": "h7v7h-7z",
    "wait": "m2 2h3v3h-3zm-2-2",
    "idle": "m3.5 0l3.5 3.5l-3.5 3.5l-3.5-3.5zm-3.5 0",
    "warn": "m3.5 0l3.5 7h-7zm-3.5 0",
    "bad": "m-.5-.5h8v8h-8zm.5 .5",
}


# One letter for each rank, so that ten thousand of them are one value of one row.
def _letter(now: datetime) -> Case:
    return Case(
        When(state=RankState.FAILED, is_stopped=True, then=Value("x")),
        When(state=RankState.FAILED, then=Value("f")),
        When(state=RankState.WAITING, replica__state__in=ENDED, then=Value("u")),
        When(state=RankState.WAITING, then=Value("w")),
        When(is_silent(now), then=Value("q")),
        When(state=RankState.RUNNING, then=Value("r")),
        default=Value("s"),
        output_field=CharField(),
    )


_LOOKS = {
    letter: appearance.RANKS[name]
    for letter, name in (
        ("x", "stopped"), ("f", "failed"), ("u", "unseen"), ("w", "waiting"), ("r", "running"), ("s", "succeeded"), ("b", "behind"),
        ("q", "silent"),
    )
}  # fmt: skip


@dataclass(slots=True)
class Spot:
    """What is written about a rank that needs attention."""

    rank: int
    replica_id: int
    state: str
    is_stopped: bool
    step: int | None
    last_line_at: datetime | None
    cpu: float | None
    gpu: float | None
    gpu_ecc_errors: int | None
    gpu_xid: int | None
    nan_series: str
    nan_step: int | None


_SPOT = tuple(one.name for one in fields(Spot))


@dataclass(frozen=True)
class Band:
    """One role's part: its drawing, and how a script finds a rank in it."""

    role: str
    words: str
    svg: SafeString


@dataclass(frozen=True)
class RankMap:
    """Stands in for `ranks.Matrix` where a job has too many ranks for cells of their own."""

    cells: list[int]  # all ranks, in order
    letters: str  # how each of them looks
    roles: Sequence[RoleView]
    summary: list[tuple[appearance.Look, int]]
    needs: Needs
    reasons: list[tuple[str, list[Replica]]]
    silent: list[tuple[Replica, str]]
    has_gpu: bool = False
    median: int | None = None
    furthest: int | None = None
    is_map: bool = True
    unexpected: list[tuple[Replica, dict[str, Any], str]] = field(default_factory=list)
    behind: Mapping[int, int] = field(default_factory=dict)  # how many steps, by rank
    late: tuple[()] = ()  # they are in `needs`
    cluster_words: tuple[()] = ()
    admitted_at: datetime | None = None

    @property
    def rows(self) -> list[int]:
        """What a template asks whether there is anything to show."""
        return self.cells

    @cached_property
    def bands(self) -> list[Band]:
        """The drawings, one for each role; made where the map is shown, not for the list beside it."""
        return _bands(self.roles, self.cells, self.letters)


def rank_map(job: Job, *, attempt: int, now: datetime) -> RankMap:
    """Return the map of an attempt with four queries, whatever the job's size.

    Of all ranks the database makes one row, of letters and steps; rows of their own come only for ranks and replicas of
    which something is shown in words.
    """
    ranks = Rank.objects.filter(job=job, attempt=attempt)
    is_stepping = Q(state=RankState.RUNNING, step__isnull=False)
    found = ranks.aggregate(
        numbers=ArrayAgg("rank", order_by="rank", default=[]),
        letters=StringAgg(_letter(now), delimiter="", order_by="rank", default=Value("")),
        steps=ArrayAgg("step", order_by="rank", default=[]),
        began=Min("started_at", filter=is_stepping),
        gpus=Count("gpu"),
    )
    numbers, steps = found["numbers"], found["steps"]
    cells = zip(numbers, found["letters"], steps, strict=True)
    running = {rank: step for rank, letter, step in cells if letter in "rq" and step is not None}
    late = appearance.behind(running, began=found["began"], now=now)
    letters = found["letters"]
    if late:
        letters = "".join("b" if rank in late else one for rank, one in zip(numbers, letters, strict=True))
    has_failed = any(one in letters for one in "fx")
    reached = [step for step in steps if step is not None]
    counts = Counter(letters)
    replicas = _with_news(job, attempt, now)
    gaps = [(replica, gap) for replica in replicas if (gap := replica.silent_for(now))]
    spots, names = _needing(ranks, late, now)
    return RankMap(
        cells=numbers,
        letters=letters,
        roles=job.role_views,
        summary=[(_LOOKS[one], count) for one, count in counts.items()],
        needs=needs_attention(
            spots, names=names, late=late, first=failures.first_failing_rank(job, attempt) if has_failed else None, now=now
        ),
        reasons=reasons(replicas),
        silent=[(replica, format_duration(gap.total_seconds())) for replica, gap in gaps],
        has_gpu=bool(found["gpus"]),
        median=median_low(reached) if reached else None,
        furthest=max(reached, default=None),
        unexpected=unexpected(replicas),
        behind=late,
    )  # fmt: skip


def _with_news(job: Job, attempt: int, now: datetime) -> list[Replica]:
    """Return the replicas of which there is something to say: a reason, an agent that is silent, unexpected ranks."""
    has_news = ~Q(reason="") | ~Q(unexpected_ranks={}) | Replica.is_silent(now)
    return list(Replica.objects.filter(has_news, job=job, attempt=attempt).order_by("id"))


def _needing(ranks: QuerySet[Rank], late: Mapping[int, int], now: datetime) -> tuple[list[Spot], dict[int, str]]:
    """Return the ranks that may need attention, and the names of their replicas."""
    is_idle = Q(state=RankState.RUNNING) & (Q(gpu__lt=IDLE) | Q(gpu_xid__isnull=False) | Q(gpu_ecc_errors__gt=0))
    has_failed = Q(state=RankState.FAILED, is_stopped=False)
    asked = ranks.filter(has_failed | is_idle | ~Q(nan_series="") | is_silent(now) | Q(rank__in=list(late))).order_by(
        "rank"
    )
    spots, names = [], {}
    for role, index, *values in asked.values_list("replica__role", "replica__index", *_SPOT):
        spots.append(spot := Spot(*values))
        names[spot.replica_id] = f"{role}-{index}"
    return spots, names


# -- drawing


@dataclass(frozen=True)
class Layout:
    """Tiles of `per` cells in `columns` columns of cells; `across` tiles side by side."""

    per: int
    columns: int
    across: int
    tiles: int

    @cached_property
    def tile(self) -> tuple[int, int]:
        """The width and height of a tile with the gap behind it."""
        return self.columns * UNIT + GAP, math.ceil(self.per / self.columns) * UNIT + GAP

    @property
    def size(self) -> tuple[int, int]:
        width, height = self.tile
        return self.across * width - GAP, math.ceil(self.tiles / self.across) * height - GAP

    def corner(self, number: int) -> tuple[int, int]:
        """Return the upper left corner of the cell of a band's rank `number`, counted from 0."""
        tile, local = divmod(number, self.per)
        (width, height), (down, right) = self.tile, divmod(tile, self.across)
        return right * width + local % self.columns * UNIT, down * height + local // self.columns * UNIT


def layout(tiles: int, per: int) -> Layout:
    """Arrange tiles so that the whole has about the shape of a pane. Two columns of cells, as GPUs of a node are drawn."""
    columns = 1 if per == 1 else 2 if per <= 8 else math.ceil(math.sqrt(per))
    width, height = Layout(per, columns, 1, 1).tile
    across = max(1, min(tiles, round(math.sqrt(SHAPE_RATIO * tiles * height / width))))
    return Layout(per, columns, across, tiles)


def drawn(letters: str, plan: Layout) -> SafeString:
    """Return one path for each state, in which each cell is placed relative to the one before it."""
    corners = _corners(plan)
    paths: list[tuple[str, str]] = []
    for letter in dict.fromkeys(letters):
        tone, (left, top), path = _LOOKS[letter].tone, (0, 0), []
        shape = _SHAPES[tone]
        for one, (x, y) in zip(letters, corners, strict=False):
            if one == letter:
                path.append(f"m{x - left} {y - top}{shape}")
                left, top = x, y
        paths.append((tone, "".join(path)))
    return format_html_join("", '<path class="{}" d="{}"/>', paths)


@lru_cache(16)
def _corners(plan: Layout) -> list[tuple[int, int]]:
    return [plan.corner(number) for number in range(plan.tiles * plan.per)]


def _bands(roles: Sequence[RoleView], ranks: Sequence[int], letters: str) -> list[Band]:
    made = []
    for role in roles:
        first, end = role.first_rank, role.first_rank + role.replicas * role.processes
        mine = letters[bisect_left(ranks, first) : bisect_left(ranks, end)]
        if mine and role.processes:
            made.append(Band(role.name, _words(role, len(mine)), _svg(role, mine)))
    return made


def _words(role: RoleView, ranks: int) -> str:
    return f"{role.replicas} replica{'s' if role.replicas != 1 else ''}, {ranks:,} ranks"


def _svg(role: RoleView, letters: str) -> SafeString:
    plan = layout(role.replicas, role.processes)
    summary = ", ".join(f"{count:,} {_LOOKS[one].word.lower()}" for one, count in Counter(letters).most_common())
    return format_html(
        '<svg class="map" id="map-{}" tabindex="0" role="img" aria-label="{}: {}" viewBox="-1 -1 {} {}" data-role="{}" data-first="{}" '
        'data-count="{}" data-per="{}" data-columns="{}" data-across="{}" data-unit="{}" data-gap="{}">{}</svg>',
        role.name, role.name, summary, plan.size[0] + 2, plan.size[1] + 2, role.name, role.first_rank, len(letters),
        plan.per, plan.columns, plan.across, UNIT, GAP, drawn(letters, plan),
    )  # fmt: skip
