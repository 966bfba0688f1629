"""Judge the replicas of an attempt together. Pure, and independent of frameworks: roles define whose end decides."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from . import exits
from .batch import clean

LARGEST_EXIT_CODE = 2**31 - 1  # of Windows containers; elsewhere 255
LARGEST_SIGNAL = 64
MOST_REASON = 4000  # characters


class ReplicaState(StrEnum):
    ABSENT = "absent"  # no such object
    PENDING = "pending"  # exists, does not run yet
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"  # existed, and ended without reporting how


ENDED = frozenset({ReplicaState.SUCCEEDED, ReplicaState.FAILED, ReplicaState.LOST})
_UP = frozenset({ReplicaState.RUNNING, ReplicaState.SUCCEEDED})
FIRST = 0  # of an elastic role: the replica that hosts the rendezvous; without it the others cannot meet
PORT_TAKEN = "port taken"  # a replica's reason: nothing ran, the rendezvous port was in use


@dataclass(frozen=True)
class RoleView:
    """The verdict's view of a role: how many replicas, and whether its end or its failure decides.

    `least` is set for an elastic one: this many are enough.
    """

    name: str
    replicas: int
    completes: bool
    essential: bool
    least: int | None = None


@dataclass(frozen=True)
class ReplicaSeen:
    """One replica as last observed. `is_alive`: something still occupies its place, whatever it reports.

    `incarnation`: how often its place was given to a new replica within the attempt before this one.
    """

    role: str
    index: int
    state: ReplicaState
    is_alive: bool = False
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    node: str = ""  # the machine it runs on, if a cluster has several
    incarnation: int = 0
    version: int = field(default=0, compare=False)  # if a cluster numbers its states: the larger one is newer

    def __post_init__(self) -> None:
        """Drop values that a row cannot hold: they would block every visit to the job.

        How a replica ended may come from the replica itself (a file, a container's termination message), so it may be
        anything.
        """
        for name, most in (("exit_code", LARGEST_EXIT_CODE), ("signal", LARGEST_SIGNAL)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or abs(value) > most):
                object.__setattr__(self, name, None)
        object.__setattr__(self, "reason", clean(self.reason[:MOST_REASON]))


@dataclass(frozen=True)
class ReplicaUpdate:
    """A change of one replica, from a cluster that watches."""

    run: str
    attempt: int
    seen: ReplicaSeen


@dataclass(frozen=True)
class Seen:
    """One observation of an attempt. `as_of` is when the cluster was in that state, not when we read it."""

    replicas: tuple[ReplicaSeen, ...] = ()
    as_of: datetime | None = None  # None: the cluster gave no answer
    is_fresh: bool = True  # False while the view is known to lag
    is_sealed: bool = False  # the attempt is closed: a late call can no longer create anything in it


@dataclass(frozen=True)
class Verdict:
    """The replicas' joint result: "succeeded", "failed" with a message, or "open"."""

    outcome: str
    message: str = ""
    is_port_taken: bool = False


def verdict(roles: Iterable[RoleView], replicas: Iterable[ReplicaSeen]) -> Verdict:
    """Return "succeeded" once all replicas of completing roles succeeded, "failed" once an essential one failed."""
    by_role: dict[str, list[ReplicaSeen]] = {}
    for replica in replicas:
        by_role.setdefault(replica.role, []).append(replica)
    roles = tuple(roles)
    completing = [role for role in roles if role.completes]
    if completing and all(_is_done(role, by_role.get(role.name, [])) for role in completing):
        return Verdict("succeeded")
    failures = (_failure(role, by_role.get(role.name, [])) for role in roles if role.essential)
    return next((one for one in failures if one), Verdict("open"))


def is_up(role: RoleView, replicas: Iterable[ReplicaSeen]) -> bool:
    """Whether a role can train: all of it is up, or of an elastic role the first and at least `least` replicas."""
    up = {one.index for one in replicas if one.role == role.name and one.state in _UP}
    return len(up) >= role.replicas if role.least is None else FIRST in up and len(up) >= role.least


def who_runs(roles: Iterable[RoleView], replicas: Iterable[ReplicaSeen]) -> str:
    count, up = sum(role.replicas for role in roles), sum(one.state in _UP for one in replicas)
    return "every replica runs" if up >= count else f"{up} of {count} replicas run, which is enough"


def describe_end(replica: ReplicaSeen) -> str:
    """Return how one replica ended, in words: "worker-1 exited with code 1"."""
    name = f"{replica.role}-{replica.index}"
    if replica.state is ReplicaState.LOST:
        return f"{name} vanished: {replica.reason or 'it ended without reporting how'}"
    why = f": {replica.reason}" if replica.reason else ""
    return f"{name} {exits.ending(replica.exit_code, replica.signal or None)}{why}"


def _is_done(role: RoleView, replicas: list[ReplicaSeen]) -> bool:
    done = {replica.index for replica in replicas if replica.state is ReplicaState.SUCCEEDED}
    if role.least is None:
        return len(done) >= role.replicas
    # A replica not up when the first one's launcher has ended well would find no rendezvous any more.
    is_any_left = any(replica.state is ReplicaState.RUNNING for replica in replicas)
    return FIRST in done and len(done) >= role.least and not is_any_left


def _failure(role: RoleView, replicas: list[ReplicaSeen]) -> Verdict | None:
    ended = [one for one in replicas if one.state in (ReplicaState.FAILED, ReplicaState.LOST)]
    if role.least is not None:
        return _elastic_failure(role, role.least, replicas, ended)
    return Verdict("failed", describe_end(ended[0]), ended[0].reason == PORT_TAKEN) if ended else None


def _elastic_failure(
    role: RoleView, least: int, replicas: list[ReplicaSeen], ended: list[ReplicaSeen]
) -> Verdict | None:
    """Return the failure of an elastic role: its first replica ended, or fewer than `least` are left.

    A replacement counts once it runs.
    """
    first = next((one for one in replicas if one.index == FIRST), None)
    if first is not None and first in ended:
        words = f"{describe_end(first)}; all others met there, so the attempt ends with it"
        return Verdict("failed", words, first.reason == PORT_TAKEN)
    is_over = first is not None and first.state is ReplicaState.SUCCEEDED
    late = [one for one in replicas if one.state is ReplicaState.PENDING and (one.incarnation or is_over)]
    left = role.replicas - len(ended) - len(late)
    if left >= least or not (ended or late):
        return None
    why = describe_end(ended[0]) if ended else f"{late[0].role}-{late[0].index} is not back yet"
    return Verdict("failed", f"{why}; {left} of at least {least} replicas are left")
