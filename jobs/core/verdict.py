"""Judge the replicas of an attempt together. Pure, and independent of frameworks: roles define whose end decides."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

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
# Requested ends, as agent/replica.py names them: no failures.
ASKED_FOR = frozenset({"stopped on request", "stopped by the control plane"})
NO_PLACE = "no place for it"  # how the reason of a replica begins that no node takes
NO_IMAGE = "no such image"  # how the reason of a replica begins whose image is proven not to exist
PLACE_TAKEN = (
    "a pod of a higher priority took its place"  # how the reason of a replica begins that its cluster preempted
)
PORT_TAKEN = "port taken"  # a replica's reason: nothing ran, the rendezvous port was in use


@dataclass(frozen=True)
class RoleView:
    """A role as stored with its job (`Job.roles`): its replicas and ranks, and whether its end or failure decides.

    `least` is set for an elastic one: this many are enough. `anchor`: the replica at which the others meet; without it
    an elastic role cannot go on. None: it can lose any.
    """

    name: str
    replicas: int
    completes: bool
    essential: bool
    least: int | None = None
    anchor: int | None = None
    processes: int = 1  # ranks in each replica
    first_rank: int = 0  # the lowest rank of replica 0
    exclusive: str = ""  # a name that one live role of a cluster may have at a time, where the cluster `FINDS_BY_NAME`
    slots: int | None = None  # of quota that each replica takes; None where a release before this field stored it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RoleView":
        """Return the role as stored. Keys of a newer release are ignored, those of an older one may be missing."""
        return cls(**{one.name: data[one.name] for one in fields(cls) if one.name in data})


def place(roles: Iterable[RoleView], name: str) -> tuple[str, int] | None:
    """Return role and number of the replica with this name, such as worker-0; None if the roles have none."""
    role, _, index = name.rpartition("-")
    known = {one.name: one.replicas for one in roles}
    is_number = index.isascii() and index.isdecimal() and len(index) <= len(str(LARGEST_EXIT_CODE))
    return (role, int(index)) if is_number and f"{int(index)}" == index and int(index) < known.get(role, 0) else None


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
    namespace: str = ""  # in which it was seen; empty where the cluster has none


@dataclass(frozen=True)
class Seen:
    """One observation of an attempt. `as_of` is when the cluster was in that state, not when we read it."""

    replicas: tuple[ReplicaSeen, ...] = ()
    as_of: datetime | None = None  # None: the cluster gave no answer
    is_fresh: bool = True  # False while the view is known to lag
    is_sealed: bool = False  # the attempt is closed: a late call can no longer create anything in it


@dataclass(frozen=True)
class Verdict:
    """The replicas' joint result: "succeeded", "failed" with a message, or "open".

    `is_hopeless`: another attempt would fail in the same way. `is_preempted`: the cluster gave a replica's place to another
    pod, which is no failure of the job.
    """

    outcome: str
    message: str = ""
    is_port_taken: bool = False
    is_hopeless: bool = False
    is_preempted: bool = False


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
    """Whether a role can train: all of it is up, or of an elastic role its anchor and at least `least` replicas."""
    up = {one.index for one in replicas if one.role == role.name and one.state in _UP}
    return len(up) >= role.replicas if role.least is None else _has_anchor(role, up) and len(up) >= role.least


def _has_anchor(role: RoleView, indices: Collection[int]) -> bool:
    return role.anchor is None or role.anchor in indices


def who_runs(roles: Iterable[RoleView], replicas: Iterable[ReplicaSeen]) -> str:
    count, up = sum(role.replicas for role in roles), sum(one.state in _UP for one in replicas)
    return "every replica runs" if up >= count else f"{up} of {count} replicas run, which is enough"


def describe_end(replica: ReplicaSeen) -> str:
    """Return how one replica ended, in words: "worker-1 exited with code 1"."""
    name = f"{replica.role}-{replica.index}"
    if replica.state is ReplicaState.LOST:
        return f"{name} vanished: {replica.reason or 'it ended without reporting how'}"
    if replica.reason.startswith(NO_IMAGE):
        return f"{name}: {replica.reason}"
    why = f": {replica.reason}" if replica.reason else ""
    return f"{name} {exits.ending(replica.exit_code, replica.signal or None)}{why}"


def _is_done(role: RoleView, replicas: list[ReplicaSeen]) -> bool:
    done = {replica.index for replica in replicas if replica.state is ReplicaState.SUCCEEDED}
    if role.least is None:
        return len(done) >= role.replicas
    # A replica that comes up after the anchor has ended would find nothing to join.
    is_any_left = any(replica.state is ReplicaState.RUNNING for replica in replicas)
    return _has_anchor(role, done) and len(done) >= role.least and not is_any_left


def _failure(role: RoleView, replicas: list[ReplicaSeen]) -> Verdict | None:
    ended = [one for one in replicas if one.state in (ReplicaState.FAILED, ReplicaState.LOST)]
    if role.least is not None:
        return _elastic_failure(role, role.least, replicas, ended=ended)
    return _failed_by(ended) if ended else None


def _failed_by(ended: list[ReplicaSeen], rest: str = "") -> Verdict:
    """Return the failure by the first of these, or by one that explains the others; `rest` follows its end.

    That is one that every attempt would have, or one whose place its cluster took: the others lost it as a peer.
    """
    telling = (one for reason in (NO_IMAGE, PLACE_TAKEN) for one in ended if one.reason.startswith(reason))
    first = next(telling, ended[0])
    is_hopeless, is_preempted = (first.reason.startswith(reason) for reason in (NO_IMAGE, PLACE_TAKEN))
    return Verdict("failed", describe_end(first) + rest, first.reason == PORT_TAKEN, is_hopeless, is_preempted)


def _elastic_failure(
    role: RoleView, least: int, replicas: list[ReplicaSeen], *, ended: list[ReplicaSeen]
) -> Verdict | None:
    """Return the failure of an elastic role: its anchor ended, or fewer than `least` are left.

    A replacement counts once it runs.
    """
    anchor = next((one for one in replicas if one.index == role.anchor), None)
    if anchor is not None and anchor in ended:
        return _failed_by([anchor], "; all others met there, so the attempt ends with it")
    is_over = anchor is not None and anchor.state is ReplicaState.SUCCEEDED
    late = [one for one in replicas if one.state is ReplicaState.PENDING and (one.incarnation or is_over)]
    left = role.replicas - len(ended) - len(late)
    if left >= least or not (ended or late):
        return None
    rest = f"; {left} of at least {least} replicas are left"
    if ended:
        return _failed_by(ended, rest)
    return Verdict("failed", f"{late[0].role}-{late[0].index} is not back yet{rest}")
