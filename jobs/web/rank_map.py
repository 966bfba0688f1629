"""All ranks of a large job at once: a drawing with a cell for each, in tiles of one replica, and in words those that matter.

Ten thousand cells as HTML would be megabytes. As one path for each state, whose cells differ little from each other, they
compress to a few kilobytes and scale to the width that there is. static/map.js finds the rank under the pointer.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from statistics import median_low
from typing import Any

from django.db.models import Case, Min, When
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from common.text import format_duration
from jobs.analysis import failures
from jobs.core.verdict import ENDED, RoleView
from jobs.models import Job, Rank, RankState, Replica

from . import present
from .look import SILENT_AFTER, Needs, needs_a_look, reasons, unexpected

UNIT, GAP = 8, 4  # of a cell with its margin, and between tiles, in units of the drawing
SHAPE_RATIO = 1.3  # width to height of the whole drawing
# What a cell looks like, drawn from its upper left corner and back to it: the state is told by shape as well as colour.
_SHAPES = {
    "run": "h7v7h-7z",
    "ok": "h7v7h-7z",
    "wait": "m2 2h3v3h-3zm-2-2",
    "idle": "m3.5 0l3.5 3.5l-3.5 3.5l-3.5-3.5zm-3.5 0",
    "warn": "m3.5 0l3.5 7h-7zm-3.5 0",
    "bad": "m-.5-.5h8v8h-8zm.5 .5",
}
_FIELDS = (
    "rank", "local_rank", "replica_id", "state", "is_stopped", "step", "cpu", "gpu", "gpu_ecc_errors", "gpu_xid", "quiet_since",
)  # fmt: skip


_OF_REPLICAS = (
    "job_id", "attempt", "role", "index", "name", "node", "state", "reason", "started_at", "last_batch_at", "unexpected_ranks",
)  # fmt: skip


@dataclass(slots=True)
class Spot:
    """What a map needs of a rank. `last_line_at`: only where that is minutes ago; `started_at`: of the first rank that runs."""

    started_at: datetime | None
    rank: int
    local_rank: int
    replica_id: int
    state: str
    is_stopped: bool
    step: int | None
    cpu: float | None
    gpu: float | None
    gpu_ecc_errors: int | None
    gpu_xid: int | None
    last_line_at: datetime | None


@dataclass(frozen=True)
class Band:
    """One role's part: its drawing, and how a script finds a rank in it."""

    role: str
    words: str
    svg: SafeString


@dataclass(frozen=True)
class RankMap:
    """Stands in for `ranks.Matrix` where a job has too many ranks for cells of their own."""

    rows: list[Replica]
    cells: list[Spot]
    looks: list[present.Look]  # of the cells
    roles: Sequence[RoleView]
    summary: list[tuple[present.Look, int]]
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

    @cached_property
    def bands(self) -> list[Band]:
        """The drawings, one for each role; made where the map is shown, not for the list beside it."""
        return _bands(self.roles, self.cells, self.looks)


def rank_map(job: Job, *, attempt: int, now: datetime) -> RankMap:
    """Return the map of an attempt with four queries, whatever the job's size.

    Of ten thousand times only those are read that say something: reading a time costs more than the rest of a row.
    """
    replicas = list(Replica.objects.filter(job=job, attempt=attempt).order_by("id").only(*_OF_REPLICAS))
    ranks = Rank.objects.filter(job=job, attempt=attempt)
    began = ranks.filter(state=RankState.RUNNING, step__isnull=False).aggregate(at=Min("started_at"))["at"]
    quiet_since = Case(When(last_line_at__lte=now - SILENT_AFTER, then="last_line_at"))
    rows = ranks.order_by("rank").annotate(quiet_since=quiet_since).values_list(*_FIELDS)
    spots = [Spot(began, *values) for values in rows]
    has_failed = any(spot.state == RankState.FAILED for spot in spots)
    first = failures.first_failing_rank(job, attempt) if has_failed else None
    late = present.lagging(spots, now)
    over = {replica.pk for replica in replicas if replica.state in ENDED}
    looks = [_look(spot, late, over) for spot in spots]
    counts = Counter(look.word for look in looks)
    by_word = {look.word: look for look in looks}
    steps = [spot.step for spot in spots if spot.step is not None]
    silent = [(replica, gap) for replica in replicas if (gap := replica.silent_for(now))]
    names = {replica.pk: f"{replica.role}-{replica.index}" for replica in replicas}
    return RankMap(
        rows=replicas,
        cells=spots,
        looks=looks,
        roles=job.role_views,
        summary=[(by_word[word], count) for word, count in counts.items()],
        needs=needs_a_look(spots, names=names, late=late, first=first, now=now),
        reasons=reasons(replicas),
        silent=[(replica, format_duration(gap.total_seconds())) for replica, gap in silent],
        has_gpu=any(spot.gpu is not None for spot in spots),
        median=median_low(steps) if steps else None,
        furthest=max(steps, default=None),
        unexpected=unexpected(replicas),
        behind=late,
    )


def _look(spot: Spot, late: dict[int, int], over: set[int]) -> present.Look:
    if spot.state == RankState.FAILED and spot.is_stopped:
        return present.RANKS["stopped"]
    if spot.state == RankState.WAITING and spot.replica_id in over:
        return present.RANKS["unseen"]
    return present.RANKS["behind" if spot.rank in late else spot.state]


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


def drawn(looks: Sequence[present.Look], plan: Layout) -> SafeString:
    """Return one path for each state, in which each cell is placed relative to the one before it."""
    paths: dict[str, list[str]] = {}
    last: dict[str, tuple[int, int]] = {}
    for number, look in enumerate(looks):
        x, y = plan.corner(number)
        before = last.get(look.tone, (0, 0))
        paths.setdefault(look.tone, []).append(f"m{x - before[0]} {y - before[1]}{_SHAPES[look.tone]}")
        last[look.tone] = x, y
    return format_html_join("", '<path class="{}" d="{}"/>', ((tone, "".join(one)) for tone, one in paths.items()))


def _bands(roles: Sequence[RoleView], spots: Sequence[Spot], looks: Sequence[present.Look]) -> list[Band]:
    made = []
    for role in roles:
        end = role.first_rank + role.replicas * role.processes
        mine = [look for spot, look in zip(spots, looks, strict=True) if role.first_rank <= spot.rank < end]
        if mine and role.processes:
            made.append(Band(role.name, _words(role, len(mine)), _svg(role, mine)))
    return made


def _words(role: RoleView, ranks: int) -> str:
    return f"{role.replicas} replica{'s' if role.replicas != 1 else ''}, {ranks:,} ranks"


def _svg(role: RoleView, looks: Sequence[present.Look]) -> SafeString:
    plan = layout(role.replicas, role.processes)
    counts = Counter(look.word.lower() for look in looks)
    said = ", ".join(f"{count:,} {word}" for word, count in counts.most_common())
    return format_html(
        '<svg class="map" id="map-{}" tabindex="0" role="img" aria-label="{}: {}" viewBox="-1 -1 {} {}" data-role="{}" data-first="{}" '
        'data-count="{}" data-per="{}" data-columns="{}" data-across="{}" data-unit="{}" data-gap="{}">{}</svg>',
        role.name, role.name, said, plan.size[0] + 2, plan.size[1] + 2, role.name, role.first_rank, len(looks),
        plan.per, plan.columns, plan.across, UNIT, GAP, drawn(looks, plan),
    )  # fmt: skip
