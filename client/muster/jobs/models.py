"""The server's answers about jobs and queues, as frozen values (`muster.http.model` describes how they are parsed)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import takewhile
from typing import Any

from muster.http.model import Json, Model, as_time, each, mapping, moment, read, unchanged
from muster.jobs.models_waiting import Waiting

LAUNCHER = -1  # the "rank" of what the launcher itself printed (docs/wire.md)


@dataclass(frozen=True)
class RankCounts(Model):
    total: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Failure(Model):
    rank: int | None = None
    replica: str = ""
    exit_code: int | None = None
    signal: int | None = None
    at: datetime | None = moment()
    kind: str = ""  # docs/verdicts.md names each, with what to do
    headline: str = ""  # the error itself in one line
    hint: str = ""  # what to change, where the error itself does not say it
    certainty: str = ""  # sure or likely
    explanation: str = ""  # how it ended, as text
    traceback: tuple[str, ...] = read(tuple, default=())
    traceback_rank: int | None = None  # the traceback's rank: if the named rank printed none, a rank that waited for it
    last_lines: tuple[str, ...] = read(tuple, default=())
    after_end: bool = False  # it became this one by reports that came after the attempt had ended
    node: str = ""  # that it blames; retries avoid it

    @property
    def words(self) -> str:
        """Return what to show: older servers send no headline."""
        return self.headline or self.explanation


@dataclass(frozen=True)
class Progress(Model):
    """Of a job that reports `total_steps`."""

    step: int
    total: int
    seconds_left: float | None = None  # by its recent speed; None where it is not known


@dataclass(frozen=True)
class Job(Model):
    id: int
    phase: str
    name: str = ""
    team: str = ""
    queue: str = ""
    user: str = ""
    framework: str = ""
    reason: str = ""
    message: str = ""
    priority: int = 0
    attempt: int = 0
    failures: int = 0
    max_retries: int = 0
    on_failure: str = ""  # what happens when a replica fails, in words; older servers send none
    nodes: int = 1
    min_nodes: int | None = None  # the fewest nodes an elastic job continues with
    nproc_per_node: int = 1
    layout: str = ""  # its replicas and the ranks in each, in words; older servers send none
    command: tuple[str, ...] = read(tuple, default=())
    env: Mapping[str, str] = mapping()
    workspace: int | None = None
    created_at: datetime | None = moment()
    admitted_at: datetime | None = moment()
    running_at: datetime | None = moment()
    finished_at: datetime | None = moment()
    ttl_seconds: int | None = None  # from its end to its removal; None: it stays
    removal_at: datetime | None = moment()  # from when it is removed, once it has ended
    phase_since: datetime | None = moment()
    is_finished: bool = False
    ranks: RankCounts = read(RankCounts.parse, default=RankCounts())
    progress: Progress | None = read(Progress.parse)
    first_failure: Failure | None = read(Failure.parse)
    waiting: Waiting | None = read(Waiting.parse)  # of a queued job that was asked for by itself; not in lists
    url: str = ""
    secrets: tuple[str, ...] = read(tuple, default=())  # their names
    template_version: int | None = None  # of its queue's template, when it was submitted
    team_secrets: tuple[str, ...] = read(tuple, default=())  # with a path where it chose one
    volumes: tuple[str, ...] = read(tuple, default=())
    notify: tuple[str, ...] = read(tuple, default=())  # webhooks that it names
    # Of its pods, as submitted; what the queue and the cluster add is in a plan.
    image: str = ""
    cpu: str = ""
    memory: str = ""
    shm: str = ""
    node_selector: Mapping[str, str] = mapping()
    tolerations: tuple[Mapping[str, Any], ...] = read(tuple, default=())
    priority_class: str = ""
    service_account: str = ""
    labels: Mapping[str, str] = mapping()
    annotations: Mapping[str, str] = mapping()
    working_dir: str = ""
    roles: Mapping[str, Mapping[str, Any]] = mapping()  # the same of single roles
    suspended: bool = False  # as requested; the phase follows
    cancel_requested_at: datetime | None = moment()
    raw: Json = unchanged()

    @property
    def span(self) -> str:
        """Return the number of nodes: "4", or of an elastic job "2 to 4"."""
        return str(self.nodes) if self.min_nodes is None else f"{self.min_nodes} to {self.nodes}"

    @property
    def is_suspended(self) -> bool:
        """Whether it is suspended and not yet resumed: after a resume its phase may lag for a moment."""
        return self.phase == "suspended" and bool(self.raw.get("suspended", True))


@dataclass(frozen=True)
class Rank(Model):
    rank: int
    attempt: int = 0
    local_rank: int | None = None
    world_rank: int | None = None  # elastic jobs: RANK as torchrun has it now; `rank` is its place and stays
    world_size: int | None = None
    replica: str = ""
    node: str = ""
    state: str = ""
    step: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    cpu: float | None = None  # cores
    rss_bytes: int | None = None
    gpu: float | None = None  # 0 to 1
    gpu_mem_bytes: int | None = None
    gpu_mem_total_bytes: int | None = None
    gpu_watts: float | None = None
    gpu_celsius: float | None = None
    gpu_ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    gpu_xid: int | None = None  # the last critical error that the driver reported
    nan_series: str = ""  # whose newest value is not finite, such as loss
    nan_step: int | None = None  # since which step
    last_line_at: datetime | None = moment()
    lines: int = 0
    started_at: datetime | None = moment()
    ended_at: datetime | None = moment()
    ending: str = ""  # how it ended, as text
    is_stopped: bool = False  # its launcher or Muster ended it: it did not fail by itself
    is_unseen: bool = False  # its replica is over, and the rank was never reported
    raw: Json = unchanged()

    @property
    def shown_state(self) -> str:
        """Return the state as on the web pages: one that was stopped did not fail, one never seen does not wait."""
        if self.is_unseen:
            return "not seen"
        return "stopped" if self.state == "failed" and self.is_stopped else self.state

    @property
    def nan_words(self) -> str:
        since = "" if self.nan_step is None else f" since step {self.nan_step:,}"
        return f"{self.nan_series} is NaN{since}" if self.nan_series else ""


@dataclass(frozen=True)
class LogLine(Model):
    at_ms: int
    text: str = ""
    rank: int = LAUNCHER
    replica: str = ""  # such as worker-0; empty from a server that does not say it
    attempt: int = 0
    is_gap: bool = False  # not printed by the job: says how many lines are missing here
    raw: Json = unchanged()

    @property
    def is_launcher(self) -> bool:
        return self.rank < 0

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_ms / 1000, tz=timezone.utc)


@dataclass(frozen=True)
class FoundLine(LogLine):
    number: int = 0  # of its rank, from 0


@dataclass(frozen=True)
class LogPage(Model):
    lines: tuple[LogLine, ...] = each(LogLine)
    cursor: str | None = None
    is_complete: bool = False
    raw: Json = unchanged()


@dataclass(frozen=True)
class Event(Model):
    at: datetime = field(metadata={"parse": as_time})
    kind: str = ""
    message: str = ""
    phase: str = ""
    attempt: int = 0
    user: str | None = None
    raw: Json = unchanged()


@dataclass(frozen=True)
class ClusterEvent(Model):
    """One of a cluster's own Events about a pod."""

    at: datetime | None = moment()
    type: str = ""  # Normal or Warning
    reason: str = ""
    object: str = ""  # Pod/NAME
    message: str = ""
    count: int = 1
    raw: Json = unchanged()


@dataclass(frozen=True)
class ClusterEvents(Model):
    """The newest Events about a job's pods, the newest first, and why there are none, or not all."""

    events: tuple[ClusterEvent, ...] = each(ClusterEvent)
    message: str = ""
    raw: Json = unchanged()


# Fields of a queue that limit its jobs; None: no limit.
LIMITS = ("highest_priority", "largest_job", "longest_seconds", "slots_per_user", "budget_hours")


@dataclass(frozen=True)
class Queue(Model):
    name: str
    team: str = ""
    cluster: str = ""
    resource: str = ""
    nominal: int = 0
    used: int = 0
    free: int | None = None  # with what it may borrow; None: a server that does not say it
    gpus_per_node: int = 0
    is_open: bool = True
    policy: str = "strict"
    flavor: str | None = None  # that it takes from its team's quota
    preempts: bool = False  # its jobs take the place of those of a lower priority
    drains: bool = False  # running jobs stop while it is closed
    highest_priority: int | None = None  # the limits; None: none
    largest_job: int | None = None  # slots
    longest_seconds: int | None = None
    slots_per_user: int | None = None
    budget_hours: int | None = None  # hours times slots in a month
    description: str = ""
    notice: str = ""  # what a user should know about the quota now
    defaults: Mapping[str, Any] = mapping()  # fields that its jobs have unless they say otherwise
    template: Mapping[str, Any] = mapping()  # what their pods are besides: node, shm_per_gpu, locked, pods
    version: int = 0  # of defaults and template
    check_state: str = ""  # whether its cluster would take such a pod: valid, invalid or not_checked
    check_words: str = ""
    raw: Json = unchanged()

    @property
    def borrowing_limit(self) -> int | None:
        """How much beyond its own it may take; None: no limit. A server that does not say it lets it take nothing."""
        found = self.raw.get("borrowing_limit", 0)
        return None if found is None else int(found)


@dataclass(frozen=True)
class QueueVersion(Model):
    """What a queue said of its jobs' pods; `changed` are paths that differ from the version before."""

    number: int
    created_at: datetime | None = moment()
    created_by: str | None = None
    changed: tuple[str, ...] = read(tuple, default=())
    content: Mapping[str, Any] = mapping()
    check_state: str = ""
    check_words: str = ""
    raw: Json = unchanged()


@dataclass(frozen=True)
class Ceiling(Model):
    """How much all queues of a team together may hold of a resource; `slots` None is no ceiling."""

    resource: str
    slots: int | None = None
    quota: int = 0
    raw: Json = unchanged()


@dataclass(frozen=True)
class Workspace(Model):
    id: int
    digest: str = ""
    size_bytes: int = 0
    files: int = 0
    team: str = ""
    user: str | None = None
    created_at: datetime | None = moment()
    raw: Json = unchanged()


@dataclass(frozen=True)
class Login(Model):
    token: str = field(repr=False)
    user: str = ""


@dataclass(frozen=True)
class Membership(Model):
    name: str
    role: str = ""


@dataclass(frozen=True)
class TokenName(Model):
    id: int | None = None
    name: str = ""
    prefix: str = ""
    scope: str = ""
    team: str | None = None
    expires_at: datetime | None = moment()


@dataclass(frozen=True)
class Me(Model):
    user: str
    is_admin: bool = False
    is_service_account: bool = False
    teams: tuple[Membership, ...] = each(Membership)
    token: TokenName | None = read(TokenName.parse)
    version: str = ""
    raw: Json = unchanged()


@dataclass(frozen=True)
class Point:
    at_ms: int
    step: int | None
    value: float | None  # None: it was not finite

    @property
    def place(self) -> str:
        return "" if self.step is None else f"step {self.step:,}"


@dataclass(frozen=True)
class Series(Model):
    name: str
    rank: int | None = None
    points: tuple[Point, ...] = read(lambda points: tuple(Point(*point[:3]) for point in points), default=())
    raw: Json = unchanged()

    @property
    def nan_since(self) -> Point | None:
        """Return the first of the newest points that are not finite; None if the newest is. Long series are thinned."""
        odd = list(takewhile(lambda point: point.value is None, reversed(self.points)))
        return odd[-1] if odd else None
