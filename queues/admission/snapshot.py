"""What admission is given: queues with their quota and what holds it, and the jobs that wait. Times in seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..resources import Resources
from .fleet import FleetState, Gang


class Policy(StrEnum):
    """Whether a job may start before one that came earlier and does not fit yet."""

    STRICT = "strict"  # never
    BACKFILL = "backfill"  # if that cannot delay the first one that waits
    BEST_EFFORT = "best_effort"  # whenever it fits: small jobs may delay a large one without end


@dataclass(frozen=True)
class Machine:
    """What the one machine of a queue's cluster bears, in slots of all its queues.

    `free`: for how many more there is memory now. Nobody waits for that while nothing runs: what is missing then is
    taken by other programs.
    """

    slots: int
    used: int
    free: int


@dataclass(frozen=True)
class Range:
    """Seconds that something probably takes: with the chance of four in five no less and no more."""

    least: float
    most: float


@dataclass(frozen=True)
class Holding:
    """A job that holds quota. `ends_by`: when it gives it back at the latest; `remaining`: when probably, from now.

    `lost`: the work since its last checkpoint, in slots times seconds. `is_leaving`: it gives the quota back as soon as its
    replicas are gone, `is_preempted`: because it was asked to. `is_spared`: it was preempted before and has come no further since, so it is not preempted now.
    """

    job: int
    takes: Resources
    ends_by: float | None = None
    remaining: Range | None = None
    queue: str = ""
    priority: int = 0
    lost: float = 0.0
    is_leaving: bool = False
    is_preempted: bool = False
    is_spared: bool = False
    user: int = 0

    @property
    def amount(self) -> int:
        return sum(self.takes.values())


@dataclass(frozen=True)
class QueueState:
    """One queue: its quota, and what its jobs hold now. `holding` names them, where a policy or a forecast needs that.

    `preempts`: its jobs may take the place of those of a lower priority in it. `user_limit`: how much of it the jobs of one
    user may hold, `user_used`: how much they do. `spent_until`: when the next month begins, if its hours are spent.
    """

    name: str
    nominal: Resources
    used: Resources = field(default_factory=dict)
    is_open: bool = True
    taken: Mapping[str, int] = field(default_factory=dict)  # names that one job at a time may have, and which has it
    machine: Machine | None = None
    policy: Policy = Policy.STRICT
    holding: tuple[Holding, ...] = ()
    preempts: bool = False
    user_limit: int | None = None
    user_used: Mapping[int, int] = field(default_factory=dict)
    spent_until: float | None = None
    fleet: FleetState | None = None  # the nodes of its cluster; None where they prove nothing


@dataclass(frozen=True)
class Pending:
    """One waiting job. `order` sorts within a queue: higher priority first, then the older one.

    `longest`: for how many seconds it holds its quota at most, if it has a deadline; `expected`: for how many probably.
    `is_claiming`: jobs were preempted for it; it comes first, or what they give back would go to others. `gang`: the replicas
    that must find room on nodes at once, where that is looked at.
    """

    job: int
    queue: str
    asked: Resources
    priority: int = 0
    submitted: float = 0.0
    names: frozenset[str] = frozenset()  # that no other running job of its cluster may have
    longest: float | None = None
    expected: Range | None = None
    is_claiming: bool = False
    user: int = 0
    gang: Gang = ()
    shape: str = ""  # what else decides where its pods may run: the same for pods that find the same nodes

    @property
    def amount(self) -> int:
        return sum(self.asked.values())

    @property
    def order(self) -> tuple[int, float, int]:
        return (-self.priority, self.submitted, self.job)
