"""What a reader should know of a job's ranks and replicas, in words: which need a look, and what the cluster says of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from common.text import format_duration
from jobs.core.verdict import ASKED_FOR
from jobs.models import Replica

SILENT_AFTER = timedelta(minutes=5)  # without a line
IDLE = 0.05  # of a core or a GPU
SHOWN = 12


class Ranked(Protocol):
    rank: int
    replica_id: int
    state: str
    is_stopped: bool
    step: int | None
    last_line_at: datetime | None
    cpu: float | None
    gpu: float | None


@dataclass(frozen=True)
class Need:
    """One rank, and why it needs a look."""

    rank: int
    replica: str
    words: str
    tone: str = "warn"


@dataclass(frozen=True)
class Needs:
    """The first of them, the most pressing first; `more` are not shown."""

    shown: list[Need] = field(default_factory=list)
    more: int = 0

    @property
    def count(self) -> int:
        return len(self.shown) + self.more


def needs_a_look(
    ranks: Sequence[Ranked], *, names: Mapping[int, str], late: Mapping[int, int], first: int | None, now: datetime
) -> Needs:
    """Return the ranks that need a look. `names`: of replicas by their key; `late`: how many steps a rank is behind.

    Silent are those that run and have printed nothing for minutes while neither processor nor GPU does anything.
    """
    failed, silent, behind, idle = [], [], [], []
    for one in ranks:
        where = names.get(one.replica_id, "")
        if one.state == "failed" and not one.is_stopped:
            failed.append(Need(one.rank, where, "failed first" if one.rank == first else "failed", "bad"))
        elif one.state == "running" and (gap := _silence(one, now)):
            silent.append(Need(one.rank, where, f"silent for {gap}: no line, and its CPU does nothing"))
        elif one.rank in late:
            behind.append((late[one.rank], Need(one.rank, where, f"{late[one.rank]:,} steps behind the others")))
        elif one.state == "running" and one.gpu is not None and one.gpu < IDLE:
            idle.append(Need(one.rank, where, f"its GPU is used {one.gpu:.0%}"))
    failed.sort(key=lambda one: one.words != "failed first")
    behind.sort(key=lambda pair: -pair[0])
    found = [*failed, *silent, *(need for _, need in behind), *idle]
    return Needs(found[:SHOWN], max(0, len(found) - SHOWN))


def _silence(one: Ranked, now: datetime) -> str:
    if one.last_line_at is None or now - one.last_line_at < SILENT_AFTER:
        return ""
    is_idle = (one.cpu or 0.0) < IDLE and (one.gpu or 0.0) < IDLE
    return format_duration((now - one.last_line_at).total_seconds()) if is_idle and one.cpu is not None else ""


def reasons(replicas: Iterable[Replica]) -> list[tuple[str, list[Replica]]]:
    """Return the cluster's reasons, each once with all its replicas; the most common first."""
    told: dict[str, list[Replica]] = {}
    for replica in replicas:
        if replica.reason and replica.reason not in ASKED_FOR:
            told.setdefault(replica.reason, []).append(replica)
    return sorted(told.items(), key=lambda pair: -len(pair[1]))
