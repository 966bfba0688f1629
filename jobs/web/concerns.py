"""What a reader should know of a job's ranks and replicas, in words: which need attention, and what the cluster reports of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol

from django.db.models import Avg, Count, Q

from common.text import format_duration
from jobs.core import exits, unexpected_ranks
from jobs.core.headlines import nan_words
from jobs.core.silence import IDLE
from jobs.core.verdict import ASKED_FOR
from jobs.models import Job, Rank, RankState, Replica

SILENT_AFTER = timedelta(minutes=5)  # without a line
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
    gpu_ecc_errors: int | None
    gpu_xid: int | None
    nan_series: str
    nan_step: int | None


# Meanings of critical errors that end a training or announce its end. Source: NVIDIA's Xid errors.
XIDS = {
    31: "memory page fault", 48: "double-bit ECC error", 63: "a memory row was retired", 64: "a memory row could not be retired",
    74: "NVLink error", 79: "the GPU has fallen off the bus", 94: "contained ECC error", 95: "uncontained ECC error",
    119: "GSP timeout", 120: "GSP error",
}  # fmt: skip


def gpu_trouble(one: Ranked) -> str:
    """Return what the driver reports of a rank's GPU, empty if all is well."""
    troubles = []
    if one.gpu_xid is not None:
        troubles.append(
            f"its GPU reports Xid {one.gpu_xid}" + (f" ({XIDS[one.gpu_xid]})" if one.gpu_xid in XIDS else "")
        )
    if one.gpu_ecc_errors:
        troubles.append(
            f"its GPU's memory has {one.gpu_ecc_errors:,} uncorrected error{'s' if one.gpu_ecc_errors > 1 else ''}"
        )
    return " and ".join(troubles)


@dataclass(frozen=True)
class Need:
    """One rank, and why it needs attention."""

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


def needs_attention(
    ranks: Sequence[Ranked], *, names: Mapping[int, str], late: Mapping[int, int], first: int | None, now: datetime
) -> Needs:
    """Return the ranks that need attention: failed, with a broken GPU, a loss that is NaN, silent, behind, or idle.

    `names`: of replicas by their key; `late`: how many steps a rank is behind.

    Silent are those that run and have printed nothing for minutes while neither processor nor GPU does anything.
    """
    failed, broken, silent, behind, idle = [], [], [], [], []
    odd: dict[str, list[Need]] = {}
    for one in ranks:
        where = names.get(one.replica_id, "")
        if one.state == "failed" and not one.is_stopped:
            words = "failed first" if one.rank == first else "failed"
            rest = (words, gpu_trouble(one), nan_words(one.nan_series, one.nan_step))
            failed.append(Need(one.rank, where, ", ".join(filter(None, rest)), "bad"))
        elif one.state == "running" and (trouble := gpu_trouble(one)):
            broken.append(Need(one.rank, where, trouble, "bad"))
        elif one.nan_series:
            words = nan_words(one.nan_series, one.nan_step)
            odd.setdefault(words, []).append(Need(one.rank, where, words, "bad"))
        elif one.state == "running" and (gap := silence(one, now)):
            silent.append(Need(one.rank, where, f"silent for {gap}: no line, and its CPU does nothing"))
        elif one.rank in late:
            behind.append((late[one.rank], Need(one.rank, where, f"{late[one.rank]:,} steps behind the others")))
        elif one.state == "running" and one.gpu is not None and one.gpu < IDLE:
            idle.append(Need(one.rank, where, f"its GPU is used {one.gpu:.0%}"))
    failed.sort(key=lambda one: not one.words.startswith("failed first"))
    behind.sort(key=lambda pair: -pair[0])
    found = [*failed, *broken, *map(_together, odd.values()), *silent, *(need for _, need in behind), *idle]
    return Needs(found[:SHOWN], max(0, len(found) - SHOWN))


def _together(same: Sequence[Need]) -> Need:
    """Return what is the same of many ranks once: a loss that diverges does so on all of them."""
    first, rest = same[0], len(same) - 1
    return replace(first, words=f"{first.words}, as on {rest:,} other rank{'s' if rest > 1 else ''}") if rest else first


def is_silent(now: datetime) -> Q:
    """Return the condition of `silence` for rows of ranks."""
    does_nothing = Q(cpu__lt=IDLE) & (Q(gpu=None) | Q(gpu__lt=IDLE))
    return does_nothing & Q(state=RankState.RUNNING, last_line_at__lte=now - SILENT_AFTER)


def silence(one: Ranked, now: datetime) -> str:
    """Return for how long a rank has been silent, "" if it is not."""
    if one.last_line_at is None or now - one.last_line_at < SILENT_AFTER:
        return ""
    is_idle = (one.cpu or 0.0) < IDLE and (one.gpu or 0.0) < IDLE
    return format_duration((now - one.last_line_at).total_seconds()) if is_idle and one.cpu is not None else ""


@dataclass(frozen=True)
class GpuUse:
    """How busy the GPUs of an attempt's running ranks are, as a mean from 0 to 1."""

    count: int
    mean: float
    idle: int


def gpu_use(job: Job, attempt: int) -> GpuUse | None:
    """Return it for an attempt that runs, with one query; None where no rank has reported a GPU."""
    running = Rank.objects.filter(job=job, attempt=attempt, state=RankState.RUNNING)
    counts = running.aggregate(count=Count("gpu"), mean=Avg("gpu"), idle=Count("gpu", filter=Q(gpu__lt=IDLE)))
    return GpuUse(**counts) if counts["count"] else None


SHOWN_UNEXPECTED = 8


def unexpected(replicas: Iterable[Replica]) -> list[tuple[Replica, dict[str, Any], str]]:
    """Return ranks that are not the job's, with how they ended; of many only the first few."""
    found = ((replica, one) for replica in replicas for one in unexpected_ranks.rows(replica.unexpected_ranks))
    return [(replica, one, _end(one)) for replica, one in islice(found, SHOWN_UNEXPECTED)]


def _end(one: Mapping[str, Any]) -> str:
    if one["state"] in ("succeeded", "failed"):
        return exits.explained(one["exit_code"], one["signal"])
    return str(one["state"] or "known by its output only")


def reasons(replicas: Iterable[Replica]) -> list[tuple[str, list[Replica]]]:
    """Return the cluster's reasons, each once with all its replicas; the most common first."""
    replicas_by_reason: dict[str, list[Replica]] = {}
    for replica in replicas:
        if replica.reason and replica.reason not in ASKED_FOR:
            replicas_by_reason.setdefault(replica.reason, []).append(replica)
    return sorted(replicas_by_reason.items(), key=lambda pair: -len(pair[1]))
