"""The matrix of ranks: a band for each role, in it one row per replica, one column per local rank."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from statistics import median_low
from typing import Any

from django.db.models import Max

from common.text import format_bytes, format_duration
from jobs.analysis import failures
from jobs.core import exits, nodes
from jobs.core.lifecycle import Phase
from jobs.core.verdict import ASKED_FOR, ENDED, ReplicaState, RoleView
from jobs.models import Job, JobEvent, Rank, RankState, Replica
from jobs.submission import pods

from . import appearance, concerns

ROOMY = 16  # up to here a cell has room for meters, if a replica has no more than NARROW ranks
NARROW, WIDE = 4, 8  # ranks per replica
COMPACT = 64  # above that a cell is a square with a number
_FAILED, _STOPPED = appearance.RANKS["failed"], appearance.RANKS["stopped"]
NOT_YET = frozenset({ReplicaState.ABSENT, ReplicaState.PENDING})


@dataclass(frozen=True)
class Cell:
    """One rank as displayed: its row, its look and, if it is late, by how many steps."""

    rank: Rank
    look: appearance.Look
    behind: int = 0
    ended: str = ""  # how, in words
    end: str = ""  # the same for a cell: "exit 1", "SIGKILL"
    is_first_failure: bool = False

    @property
    def is_bad(self) -> bool:
        return self.is_first_failure or self.look == _FAILED

    @property
    def first_words(self) -> str:
        """A label: a verdict may name a rank that did not fail itself, but that the others waited for."""
        return "failed first" if self.look == _FAILED else "likely cause"

    @property
    def load(self) -> str:
        """How busy it is, in percent: its GPU, or without one its first CPU core."""
        share = self.rank.gpu if self.rank.gpu is not None else self.rank.cpu
        return f"{100 * min(1.0, max(0.0, share or 0.0)):.0f}"

    @property
    def memory(self) -> str:
        """Of its GPU, of how much, or without one its own."""
        if self.rank.gpu_mem_bytes and self.rank.gpu_mem_total_bytes:
            used, total = format_bytes(self.rank.gpu_mem_bytes), format_bytes(self.rank.gpu_mem_total_bytes)
            # The unit once, where it is the same: a cell is narrow.
            return f"{used.removesuffix(total[total.index(' ') :])} of {total}"
        return format_bytes(self.rank.gpu_mem_bytes or self.rank.rss_bytes)

    @property
    def gpu_words(self) -> str:
        """The state of its GPU beside its use: "612 W, 64 °C"."""
        watts, celsius = self.rank.gpu_watts, self.rank.gpu_celsius
        parts = [f"{watts:.0f} W" if watts is not None else "", f"{celsius:.0f} °C" if celsius is not None else ""]
        return ", ".join(word for word in (*parts, concerns.gpu_trouble(self.rank)) if word)


@dataclass(frozen=True)
class Alone:
    """A replica without ranks as displayed: its state, and what its node of the framework's own cluster has."""

    look: appearance.Look
    ended: str = ""
    amounts: list[tuple[str, str]] = field(default_factory=list)
    load: str = ""  # how much of what it has is in use, in percent


@dataclass(frozen=True)
class Matrix:
    rows: list[tuple[Replica, list[Cell]]] = field(default_factory=list)
    columns: int = 0  # the most ranks of a replica
    size: str = "roomy"  # roomy, dense or compact
    has_gpu: bool = False
    silent: list[tuple[Replica, str]] = field(
        default_factory=list
    )  # replicas whose agents send nothing, and for how long
    median: int | None = None
    furthest: int | None = None
    cluster: Mapping[str, Any] | None = None  # the framework's own cluster, as its head reports it (jobs/core/nodes.py)
    roles: Mapping[str, RoleView] = field(default_factory=dict)
    admitted_at: datetime | None = None  # all replicas of the attempt together
    needs: concerns.Needs = field(
        default_factory=concerns.Needs
    )  # without those that failed or are behind: the matrix shows them
    counts: list[tuple[appearance.Look, int]] | None = None  # of all ranks, where only some are shown

    @cached_property
    def words(self) -> dict[int, str]:
        """The state of each replica in a word, by its key: one that was asked to stop did not fail."""
        return {replica.pk: _word(replica, cells) for replica, cells in self.rows}

    @cached_property
    def alone(self) -> dict[int, Alone]:
        """Replicas without ranks, by the number of their row."""
        nodes = {one["name"]: one for one in self.cluster["nodes"]} if self.cluster else {}
        return {
            replica.pk: as_alone(
                replica, nodes.get(f"{replica.role}-{replica.index}", {}), may_come=self.may_come(replica)
            )
            for replica, cells in self.rows
            if not cells
        }

    def may_come(self, replica: Replica) -> bool:
        """Whether the job runs without it: a place of an elastic role beyond its minimum that nothing has yet."""
        role = self.roles.get(replica.role)
        if role is None or role.least is None or replica.state not in NOT_YET:
            return False
        return self._up[replica.role] >= role.least

    @cached_property
    def _up(self) -> Counter[str]:
        """How many replicas of each role are running."""
        return Counter(replica.role for replica, _ in self.rows if replica.state == ReplicaState.RUNNING)

    @property
    def size_words(self) -> str:
        """A band's size, and while it is not up as a whole, how much of it is."""
        role, count, ranks = self.roles.get(self.rows[0][0].role), len(self.rows), len(self.cells)
        up = self._up.total()
        is_over = all(replica.state in ENDED for replica, _ in self.rows)
        words = f"{count} replica{'s' if count != 1 else ''}"
        if role is not None and role.least is not None and not is_over:
            words = f"{up} of {role.least} to {role.replicas} replicas are up"
        elif up < count and not is_over:
            words = f"{up} of {words} {'is' if up == 1 else 'are'} up"
        return words + (f", {ranks} rank{'s' if ranks != 1 else ''}" if ranks else "")

    @property
    def cluster_words(self) -> list[str]:
        """The framework's own cluster in a few numbers."""
        if not self.cluster:
            return []
        count, waiting = len(self.cluster["nodes"]), self.cluster.get("waiting") or 0
        amounts = [f"{name} {value}" for name, value in _amounts(nodes.sums(self.cluster))]
        return [
            self.cluster["framework"], f"{count} node{'s' if count != 1 else ''}", *amounts,
            *([f"waiting for room: {waiting} task{'s' if waiting != 1 else ''} or actor{'s' if waiting != 1 else ''}"] if waiting else []),
        ]  # fmt: skip

    @property
    def bands(self) -> list[tuple[str, "Matrix"]]:
        """One matrix for each role, in the order of the roles: their replicas may have different numbers of ranks."""
        rows: dict[str, list[tuple[Replica, list[Cell]]]] = {}
        for row in self.rows:
            rows.setdefault(row[0].role, []).append(row)
        return [(role, replace(self, rows=own, columns=_columns(own))) for role, own in rows.items()]

    @property
    def cells(self) -> list[Cell]:
        return [cell for _, cells in self.rows for cell in cells]

    @property
    def width(self) -> str:
        """A CSS class for the page width at which its cells still fit side by side."""
        return "narrow" if self.columns <= NARROW else "wide" if self.columns <= WIDE else "many"

    @property
    def troubled(self) -> list[tuple[Replica, list[Cell]]]:
        """Replicas with failed ranks, the first failure's first: they are shown in full, in no scrolling box."""
        found = [row for row in self.rows if any(cell.is_bad for cell in row[1])]
        return sorted(found, key=lambda row: not any(cell.is_first_failure for cell in row[1]))

    @property
    def others(self) -> list[tuple[Replica, list[Cell]]]:
        return [row for row in self.rows if not any(cell.is_bad for cell in row[1])]

    @property
    def late(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.behind]

    @property
    def reasons(self) -> list[tuple[str, list[Replica]]]:
        return concerns.reasons(replica for replica, _ in self.rows)

    @property
    def unexpected(self) -> list[tuple[Replica, dict[str, Any], str]]:
        return concerns.unexpected(replica for replica, _ in self.rows)

    @property
    def summary(self) -> list[tuple[appearance.Look, int]]:
        """How many ranks are in which state, without empty states."""
        if self.counts is not None:
            return self.counts
        looks = {cell.look.word: cell.look for cell in self.cells}
        return [(look, sum(cell.look == look for cell in self.cells)) for look in looks.values()]


def matrix(
    job: Job, *, attempt: int, now: datetime, only: range | None = None, late: Mapping[int, int] | None = None
) -> Matrix:  # fmt: skip
    """Return a job's matrix with at most four queries, whatever the job's size. Empty before the first launch.

    `only`: these ranks, of a job that has too many for one page; `late`: how far which ranks are behind all others.
    """
    replicas = list(Replica.objects.filter(job=job, attempt=attempt).order_by("id"))
    roles = job.role_views
    # An attempt gets its number once it is launched.
    steps = JobEvent.objects.filter(job=job, kind="step", attempt=attempt - 1, phase=Phase.ADMITTED)
    admitted = steps.aggregate(at=Max("at"))["at"] if len(roles) > 1 else None
    # Without the output of failed ranks: up to 44 KB each.
    mine = Rank.objects.filter(job=job, attempt=attempt).order_by("rank").defer("error")
    ranks = list(mine if only is None else mine.filter(rank__gte=only.start, rank__lt=only.stop))
    # The rows are loaded already; the first failure is queried only if a rank failed.
    first = failures.first_failing_rank(job, attempt) if any(rank.state == RankState.FAILED for rank in ranks) else None
    grid = arrange(replicas, ranks, now=now, first=first, late=late)
    return replace(grid, roles={role.name: role for role in roles}, admitted_at=admitted)


def landed(job: Job, *, attempt: int) -> list[str]:
    """Return on which values of its template's levels an attempt runs, such as "example.org/rack: r1 (2 replicas), r2 (1)"."""
    levels = pods.levels_of(job)
    if not levels:
        return []  # of most jobs, without a query
    values = Replica.objects.filter(job=job, attempt=attempt, topology__isnull=False).values_list("topology", flat=True)
    known = [one for one in values if one]
    counts = {level: Counter(one[level] for one in known if level in one) for level in levels}
    return [f"{level}: {_counted(count)}" for level, count in counts.items() if count]


def _counted(values: Counter[str]) -> str:
    """Return "r1 (2 replicas), r2 (1)", the most frequent first."""
    first, *others = values.most_common()
    plural = "s" if first[1] != 1 else ""
    return ", ".join([f"{first[0]} ({first[1]} replica{plural})", *(f"{value} ({count})" for value, count in others)])


def arrange(
    replicas: Sequence[Replica], ranks: Sequence[Rank], *, now: datetime, first: int | None = None,
    late: Mapping[int, int] | None = None,
) -> Matrix:  # fmt: skip
    """Arrange rows as a matrix. `first` is the rank that failed first."""
    late = appearance.lagging(ranks, now) if late is None else late
    over = {replica.pk for replica in replicas if replica.state in ENDED}
    by_replica: dict[int, list[Cell]] = {}
    for rank in ranks:
        is_over = rank.replica_id in over
        cell = _cell(rank, late.get(rank.rank, 0), is_over, now=now, is_first=rank.rank == first)
        by_replica.setdefault(rank.replica_id, []).append(cell)
    rows = [(replica, by_replica.get(replica.pk, [])) for replica in replicas]
    steps = [rank.step for rank in ranks if rank.step is not None]
    columns = _columns(rows)
    names = {replica.pk: f"{replica.role}-{replica.index}" for replica in replicas}
    others = [rank for rank in ranks if _is_for_needs(rank, late)]
    return Matrix(
        needs=concerns.needs_attention(others, names=names, late={}, first=None, now=now),
        rows=rows,
        columns=columns,
        size="roomy" if len(ranks) <= ROOMY and columns <= NARROW else "dense" if len(ranks) <= COMPACT else "compact",
        silent=[
            (replica, format_duration(gap.total_seconds())) for replica in replicas if (gap := replica.silent_for(now))
        ],
        has_gpu=any(rank.gpu is not None for rank in ranks),
        median=median_low(steps) if steps else None,
        furthest=max(steps, default=None),
        cluster=next((one.nodes for one in replicas if one.nodes and one.state not in ENDED), None),
    )


def _is_for_needs(rank: Rank, late: Mapping[int, int]) -> bool:
    """Return whether something may be said of a rank that its cell does not show."""
    if rank.state == RankState.FAILED and not rank.is_stopped:
        return False
    return bool(rank.nan_series) or (rank.state == RankState.RUNNING and rank.rank not in late)


def _word(replica: Replica, cells: Sequence[Cell]) -> str:
    is_stopped = replica.reason in ASKED_FOR or (bool(cells) and all(cell.look == _STOPPED for cell in cells))
    return "stopped" if replica.state == ReplicaState.FAILED and is_stopped else replica.state


def as_alone(replica: Replica, node: Mapping[str, Any], *, may_come: bool = False) -> Alone:
    """Return how a replica without ranks is displayed. `node`: what its framework's own cluster reports of it."""
    if may_come:
        return Alone(appearance.MAY_COME)
    ended = exits.explained(replica.exit_code, replica.signal) if replica.state in ENDED else ""
    used, total = node.get("gpu") or node.get("cpu") or (0, 0)
    look = _STOPPED if _word(replica, ()) == "stopped" else appearance.REPLICAS[replica.state]
    return Alone(look, ended, _amounts(node), f"{100 * used / total:.0f}" if total else "")


def _amounts(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is in use of what there is, as (name, words); what a node has none of is left out."""
    found = [(word, f"{node[name][0]:g} of {node[name][1]:g}") for name, word in (("cpu", "CPU"), ("gpu", "GPU"))
             if name in node and node[name][1]]  # fmt: skip
    used, total = node.get("object_store_bytes", (0, 0))
    if total:
        found.append(("Object store", f"{format_bytes(int(used)) or '0 B'} of {format_bytes(int(total))}"))
    return found + ([("Actors", str(node["actors"]))] if node.get("actors") else [])


def _columns(rows: Sequence[tuple[Replica, list[Cell]]]) -> int:
    return max((len(cells) for _, cells in rows), default=0)


def _cell(rank: Rank, behind: int, is_over: bool, *, now: datetime, is_first: bool) -> Cell:
    state = "stopped" if rank.is_stopped and rank.state == "failed" else rank.state
    state = "unseen" if is_over and state == "waiting" else state
    state = "silent" if state == RankState.RUNNING and concerns.silence(rank, now) else state
    ended = exits.explained(rank.exit_code, rank.signal) if rank.ended_at else ""
    end = exits.brief(rank.exit_code, rank.signal) if rank.ended_at else ""
    return Cell(rank, appearance.RANKS["behind" if behind else state], behind, ended, end, is_first)
