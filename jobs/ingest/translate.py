"""Translate a batch into rows.

Pure: the stored state (the baseline) and the time are arguments, nothing is written here.

Data from a replica is untrusted until it is translated: numbers that no row can hold and lines that were sent before
are refused by name; times are limited to the range the control plane itself saw. A rank that the replica does not have
costs its own items only (unexpected_ranks.py).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from common.errors import InvalidInput, Problem
from common.text import format_bytes
from jobs.core import checkpoints as listings
from jobs.core import lonely_ranks, nodes, volume_use, working_folders
from jobs.core import unexpected_ranks as unexpected
from jobs.core.batch import LAUNCHER, MAX_SEGMENT_RAW_BYTES, Batch, Item, clean, last_words
from jobs.core.headlines import HEADLINES
from volumes.use import Use

ENDED = ("succeeded", "failed")
STATES = ("waiting", "running", *ENDED)
MAX_INT = 2**31 - 1
MAX_LINE = 2**53
MAX_NAMES_PER_POINT = 50  # agents cut there too (agent/output/outbox.py)
MOST_NUMBERS = 128_000  # in all points of a batch; an agent sends 50,000 at most
MOST_POINTS = 128_000  # per batch; an agent sends at most 500 for each of its ranks, of which it has 256 at most
MAX_NAMES = 200  # per job: each is a chart on one page
MOST_LOCAL = 4096  # of an unexpected rank's own counts
AHEAD_SECONDS = 5.0  # a replica's clock may be a little ahead of ours
BEHIND_SECONDS = 3600.0  # and further behind, before the job was even submitted
SAMPLES = {
    "cpu": ("system/cpu", 1e6), "rss_bytes": ("system/memory", 2.0**60), "gpu": ("system/gpu", 1e3),
    "gpu_mem_bytes": ("system/gpu memory", 2.0**60),
}  # fmt: skip
# Kept as a rank's newest values only, with the largest that is taken.
GPU_STATE = {
    "gpu_mem_total_bytes": 2.0**60, "gpu_watts": 1e5, "gpu_celsius": 1e3, "gpu_ecc_errors": 2.0**53, "gpu_xid": float(2**31 - 1),
}  # fmt: skip
SAMPLED = (*SAMPLES, *GPU_STATE)
LOST_SINCE_BACKUP = "this server was restored from a backup, and what came after the backup is lost"
_WHOLE = ("bytes", "errors", "xid")  # how names of whole numbers end


@dataclass(frozen=True)
class StreamPosition:
    """A stream's next line number and its last line's time, in seconds since the epoch.

    For a rank also its state, the series whose newest value is not finite, and its newest value of each of SAMPLED.
    """

    line: int = 0
    at: float = 0.0
    state: str = ""
    restarts: int = 0
    nan_series: str = ""
    sampled: tuple[float | None, ...] = (None,) * len(SAMPLED)


@dataclass(frozen=True)
class Baseline:
    """The replica before this batch. `positions` has each of its ranks, and the launcher once it printed something."""

    positions: dict[int, StreamPosition]
    since: float  # when the job was submitted
    names: frozenset[str] = frozenset()  # series that the job already has
    before: Mapping[int, int] = field(
        default_factory=dict
    )  # rank to lines of its stream that this agent does not count
    unexpected: Mapping[str, Any] = field(default_factory=dict)  # as in the replica's row
    is_over: bool = False  # its attempt ended
    is_restored: bool = False  # from a backup: lines and states that came since are lost

    @property
    def ranks(self) -> list[int]:
        return sorted(rank for rank in self.positions if rank != LAUNCHER)


@dataclass
class RowChanges:
    """Rows as plain values; times in seconds since the epoch. `ranks` holds only changed fields."""

    segments: list[dict[str, Any]] = field(default_factory=list)
    chunks: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    what: set[str] = field(default_factory=set)  # kinds of changes, for open pages
    names: set[str] = field(default_factory=set)  # new series
    left_out: set[str] = field(default_factory=set)  # series beyond a job's limit
    has_replica_state: bool = False
    has_replica_end: bool = False
    lost: str = ""  # why the text is not kept
    unexpected: dict[str, Any] | None = None  # the replica's unexpected ranks, if the batch has items of any
    unexpected_lines: int = 0  # their lines, in the launcher's stream
    nodes: dict[str, Any] | None = None  # of the framework's own cluster, if the batch reports them
    alone: tuple[int, ...] = ()  # ranks that train without having met the others
    folder: working_folders.Files | None = None  # what the replica carried over into its working folder, or lost there
    volumes: Mapping[str, Use] = field(default_factory=dict)  # the team's that it mounts, by name
    checkpoints: listings.Listing | None = None  # all of the job's
    cut: tuple[str, str] | None = None  # how a note begins, and the rest, if a budget left no room for all text
    stored_bytes: int = 0

    @property
    def ended(self) -> frozenset[int]:
        """Ranks whose end this batch reports, and the launcher if it reports the replica's."""
        ranks = {rank for rank, one in self.ranks.items() if one.get("state") in ENDED}
        return frozenset({*ranks, LAUNCHER} if self.has_replica_end else ranks)

    def lose_text(self, why: str) -> None:
        """Turn all text into gaps because it was not stored; everything else stays."""
        self.lost = why
        for segment in self.segments:
            segment.update(is_text=False, offset=0, size_bytes=0)


def unplanned(batch: Batch, *, positions: Mapping[int, StreamPosition], planned: int) -> dict[int, int]:
    """Return the ranks that this batch is the first to report, below twice the planned number, with their local ranks.

    Launchers inside a job, and frameworks that place ranks themselves, start more than were planned. A higher number is
    more likely a process with a RANK of its own.
    """
    items = (item.fields for item in batch.items if item.kind == "rank")
    numbers = ((one.get("rank"), one.get("local_rank")) for one in items)
    return {
        rank: _small(local) or 0
        for rank, local in numbers
        if type(rank) is int and 0 <= rank < 2 * planned and rank not in positions
    }


def read(batch: Batch, *, baseline: Baseline, now: float) -> RowChanges:
    """Translate a batch. Raises InvalidInput naming the field that no row can hold."""
    return _Reading(baseline, now).read(batch)


class _Reading:
    def __init__(self, baseline: Baseline, now: float):
        self.baseline, self.now = baseline, now
        self.positions = dict(baseline.positions)
        self.changes = RowChanges()
        self.offset, self.points, self.numbers = 0, 0, 0
        self.kinds: dict[str, Callable[[Item], None]] = {
            "replica": self._replica, "rank": self._rank, "log": self._log, "gap": self._log,
            "metrics": self._metrics, "sample": self._sample, "nodes": self._nodes,
            "folder": self._folder, "alone": self._alone, "volumes": self._volumes, "checkpoints": self._checkpoints,
        }  # fmt: skip

    def read(self, batch: Batch) -> RowChanges:
        for item in batch.items:
            if item.kind in self.kinds:  # a newer agent may send more kinds; that is not an error
                self.kinds[item.kind](item)
        return self.changes

    def _replica(self, item: Item) -> None:
        """Treat the agent's report as a doorbell only: the reconciler observes the cluster itself."""
        self.changes.has_replica_state = True
        self.changes.has_replica_end |= item.fields.get("state") in ENDED

    def _folder(self, item: Item) -> None:
        self.changes.folder = working_folders.read(item)

    def _volumes(self, item: Item) -> None:
        self.changes.volumes = volume_use.read(item)

    def _checkpoints(self, item: Item) -> None:
        self.changes.checkpoints = listings.read(item, at=self._time(item))

    def _alone(self, item: Item) -> None:
        self.changes.alone = lonely_ranks.read(item)

    def _rank(self, item: Item) -> None:
        state = item.text("state", 20)
        if state not in STATES:
            raise _wrong("rank.state", state, f"must be one of {', '.join(STATES)}")
        signal = item.optional("signal", 1, 1000)
        exit_code = item.optional("exit_code", -MAX_INT, MAX_INT) if signal is None else None
        error_at = item.real("error_at")
        rank = self._own(item, state=state, exit_code=exit_code, signal=signal)
        restart = item.optional("restart", 0, MAX_INT)
        if rank is None:
            return
        taken = self._life(rank, state, restart)
        if taken is None:
            return
        self._change(
            rank, state=state, restart=taken, pid=item.optional("pid", 0, MAX_INT), at=self._time(item), signal=signal,
            world_rank=item.optional("world_rank", 0, MAX_INT), world_size=item.optional("world_size", 1, MAX_INT),
            exit_code=exit_code, error_at=None if error_at is None else self._kept(error_at),
            is_connection_error=item.flag("is_connection_error"), is_stopped=item.flag("is_stopped"), error=last_words(item),
        )  # fmt: skip
        self.changes.what.add("ranks")

    def _life(self, rank: int, state: str, restart: int | None) -> int | None:
        """Return the restart that a state belongs to; None if the state changes nothing.

        An end is final: only a higher restart count is a new run of the rank, and none begins once the attempt is over.
        Agents of the previous release send no count; for them a rank that runs after its end was restarted once.
        """
        position = self.positions[rank]
        is_ended = position.state in ENDED
        if restart is None:
            restart = position.restarts + (is_ended and state == "running")
        if self.baseline.is_over and (is_ended or state not in ENDED):
            return None
        if restart < position.restarts or (is_ended and restart == position.restarts):
            return None
        self.positions[rank] = replace(position, state=state, restarts=restart)
        return restart

    def _log(self, item: Item) -> None:
        first, lines = item.number("first_line", 0, MAX_LINE), item.number("lines", 0, MAX_INT)
        rank, first = self._stream(item, first, lines)
        position = self.positions.get(rank, StreamPosition())
        if first < position.line:
            raise _wrong(f"{item.kind}.first_line", first, f"rank {rank} sent its lines up to {position.line} before")
        if not lines:
            self.offset += len(item.blob)
            return
        if self.baseline.is_restored and first > position.line:
            self._mark_lost(rank, position, first)
        # Time never runs backwards within a stream, whatever its clock did: readers merge streams by it.
        first_at = max(self._time(item, "first_at", "last_at"), position.at)
        last_at = max(self._time(item, "last_at"), first_at)
        raw_bytes = item.number("raw_bytes", 0, MAX_SEGMENT_RAW_BYTES if item.kind == "log" else MAX_INT)
        if item.kind == "log" and lines > raw_bytes:
            raise _wrong("log.lines", lines, f"are more than {raw_bytes} bytes can hold")
        self.changes.segments.append(
            {"rank": rank, "first_line": first, "lines": lines, "first_at": first_at, "last_at": last_at,
             "raw_bytes": raw_bytes, "is_text": item.kind == "log", "offset": self.offset, "size_bytes": len(item.blob)}
        )  # fmt: skip
        self.offset += len(item.blob)
        self.positions[rank] = replace(position, line=first + lines, at=last_at)
        if rank != LAUNCHER:
            self._change(rank, last_line_at=last_at, lines=first + lines)
        self.changes.what.add("logs")

    def _mark_lost(self, rank: int, position: StreamPosition, first: int) -> None:
        """Show the lines that came between a backup and the batch that follows its restoration as a gap."""
        self.changes.segments.append(
            {"rank": rank, "first_line": position.line, "lines": first - position.line, "first_at": position.at or self.now,
             "last_at": position.at or self.now, "raw_bytes": 0, "is_text": False, "offset": 0, "size_bytes": 0}
        )  # fmt: skip
        self.changes.lost = LOST_SINCE_BACKUP

    def _metrics(self, item: Item) -> None:
        points = item.fields.get("points")
        if not isinstance(points, list):
            raise _wrong("metrics.points", None, "must be a list")
        self.points += len(points)
        if self.points > MOST_POINTS:
            raise _wrong("metrics.points", self.points, f"are more than the {MOST_POINTS} that one batch brings")
        rank = self._reporter(item)
        for at, step, values in map(_point, points):
            self.numbers += len(values)
            if self.numbers > MOST_NUMBERS:
                raise _wrong("metrics.points", None, f"hold more than the {MOST_NUMBERS} numbers that one batch brings")
            if rank is None:
                continue
            at = self._kept(at)
            for name, value in list(values.items())[:MAX_NAMES_PER_POINT]:
                self._add(rank, clean(name[:60]), at, step=step, value=value)
                if name in HEADLINES:
                    self._headline(rank, name, step=step, value=value)
            if step is not None:
                self._change(rank, step=step)
        self.changes.what |= {"metrics", "ranks"}

    def _headline(self, rank: int, name: str, *, step: int | None, value: float | None) -> None:
        """Note since when a loss is not a finite number; a finite value ends that."""
        position = self.positions[rank]
        if value is None and not position.nan_series:
            self._change(rank, nan_series=name, nan_step=step)
            self.positions[rank] = replace(self.positions[rank], nan_series=name)
        elif value is not None and position.nan_series == name:
            self._change(rank, nan_series="", nan_step=None)
            self.positions[rank] = replace(self.positions[rank], nan_series="")

    def _sample(self, item: Item) -> None:
        rank, at = self._own(item), self._time(item)
        if rank is None:
            return
        known = dict(zip(SAMPLED, self.positions[rank].sampled, strict=True))
        for name, most in (*((name, most) for name, (_, most) in SAMPLES.items()), *GPU_STATE.items()):
            value = item.real(name)
            if value is None:
                continue
            if not 0 <= value <= most:
                if name in GPU_STATE:  # a sensor's slip is not worth the numbers of all other ranks
                    continue
                raise _wrong(f"sample.{name}", value, f"must be from 0 to {most:g}")
            self._change(rank, **{name: int(value) if name.endswith(_WHOLE) else value})
            if name in SAMPLES:
                self._add(rank, SAMPLES[name][0], at, step=None, value=value)
            if _as_shown(name, value) != _as_shown(name, known[name]):
                self.changes.what.add("samples")

    def _nodes(self, item: Item) -> None:
        self.changes.nodes = nodes.read(item)
        self.changes.what.add("ranks")

    def _add(self, rank: int, name: str, at: float, *, step: int | None, value: float | None) -> None:
        if not self._may_have(name):
            return
        chunk = self.changes.chunks.get((rank, name))
        if chunk is None:
            chunk = {"rank": rank, "name": name, "times": [], "steps": [], "values": []}
            self.changes.chunks[rank, name] = chunk
        chunk["times"].append(at)
        chunk["steps"].append(step)
        chunk["values"].append(value)

    def _may_have(self, name: str) -> bool:
        if name in self.baseline.names or name in self.changes.names:
            return True
        if len(self.baseline.names) + len(self.changes.names) >= MAX_NAMES:
            self.changes.left_out.add(name)
            return False
        self.changes.names.add(name)
        return True

    def _stream(self, item: Item, first: int, lines: int) -> tuple[int, int]:
        """Return the stream in which these lines are stored, and the first line's number there.

        Lines of an unexpected rank are put behind the launcher's; its agent does not count them, so later launcher
        lines are shifted by as many.
        """
        rank = LAUNCHER if item.whole("rank") == LAUNCHER else self._own(item)
        if rank is None:
            self.changes.unexpected_lines += lines
            return LAUNCHER, self.positions.get(LAUNCHER, StreamPosition(self.baseline.before.get(LAUNCHER, 0))).line
        first += self.baseline.before.get(rank, 0)  # an agent counts its own from 0
        return rank, first + self.changes.unexpected_lines if rank == LAUNCHER else first

    def _reporter(self, item: Item) -> int | None:
        """Return the rank of these points; None for an unexpected one.

        A process without a RANK (-1) reports for the first rank.
        """
        if item.whole("rank") == LAUNCHER and self.baseline.ranks:
            return self.baseline.ranks[0]
        return self._own(item)

    def _own(self, item: Item, **values: Any) -> int | None:
        """Return the rank of an item; None if the replica does not have it.

        The unexpected rank and its `values` are then kept separately.
        """
        number = item.whole("rank")
        if number != LAUNCHER and number in self.baseline.positions:
            return number
        if 0 <= number <= MAX_INT:
            values |= {name: _small(item.fields.get(name)) for name in ("local_rank", "local_world_size")}
            kept = self.baseline.unexpected if self.changes.unexpected is None else self.changes.unexpected
            self.changes.unexpected = unexpected.with_rank(kept, number, values)
            self.changes.what.add("ranks")
        return None

    def _change(self, rank: int, **values: Any) -> None:
        changed = self.changes.ranks.setdefault(rank, {"rank": rank})
        position = self.positions[rank]
        if self.baseline.is_restored and position.state == "waiting" and not self.baseline.is_over:
            # Its start was reported after the backup, and an agent reports it once.
            changed |= {"state": "running", "restart": position.restarts, "at": self.now}
            changed |= {"is_connection_error": False, "is_stopped": False}
            self.positions[rank] = replace(position, state="running")
        changed |= values

    def _time(self, item: Item, *names: str) -> float:
        """Return the first of these times that is given, else now."""
        given = [at for at in (item.real(name) for name in names or ("at",)) if at is not None]
        return self._kept(given[0]) if given else self.now

    def _kept(self, at: float) -> float:
        return min(max(at, self.baseline.since - BEHIND_SECONDS), self.now + AHEAD_SECONDS)


def _point(entry: Any) -> tuple[float, int | None, dict[str, float | None]]:
    """Parse [time, step or null, {name: number}]. A value that is not finite is None, and so is an absurd step."""
    match entry:
        case [int() | float() as at, None | int() as step, dict() as values] if not isinstance(at, bool):
            return _real(at) or 0.0, _step(step), {str(name): _real(value) for name, value in values.items()}
    raise _wrong("metrics.points", None, "each must be [time, step or null, {name: number}]")


def _as_shown(name: str, value: float | None) -> object:
    """Reduce a sample to what pages show of it: they are notified of nothing that nobody would see."""
    if value is None:
        return None
    if name.endswith("bytes"):
        return format_bytes(value)
    return round(100 * value) if name in ("cpu", "gpu") else round(value)


def _small(value: Any) -> int | None:
    """Return a count of an unexpected rank, used only for advice; anything else becomes None."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_LOCAL
    return value if is_count else None


def _step(value: int | None) -> int | None:
    return value if value is not None and -MAX_LINE <= value <= MAX_LINE else None


def _real(value: Any) -> float | None:
    """Return a finite number: JSON, and so every chart and script, has no NaN; Python's integers are unbounded."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("metrics.points", value, "values must be numbers or null")
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _wrong(name: str, value: object, message: str) -> InvalidInput:
    return InvalidInput(Problem(name, value, message))
