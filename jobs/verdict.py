"""What the replicas of an attempt say together. Pure, and knows no framework: roles say whose end decides."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ReplicaState(StrEnum):
    ABSENT = "absent"  # no such object
    PENDING = "pending"  # exists, does not run yet
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"  # existed, and ended without saying how


ENDED = frozenset({ReplicaState.SUCCEEDED, ReplicaState.FAILED, ReplicaState.LOST})
PORT_TAKEN = "port taken"  # a replica's reason: nothing ran, the rendezvous port was in use


@dataclass(frozen=True)
class RoleView:
    """What the verdict must know of a role: how many, and whether its end or its failure decides."""

    name: str
    replicas: int
    completes: bool
    essential: bool


@dataclass(frozen=True)
class ReplicaSeen:
    """One replica as last observed. `is_alive`: it still occupies its place, whatever it reports."""

    role: str
    index: int
    state: ReplicaState
    is_alive: bool = False
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    node: str = ""  # the machine it was given, where a cluster has several
    version: int = field(default=0, compare=False)  # where a cluster numbers its looks: the larger one is newer


@dataclass(frozen=True)
class Sighting:
    """News of one replica from a cluster that watches."""

    run: str
    attempt: int
    seen: ReplicaSeen


@dataclass(frozen=True)
class Seen:
    """One look at an attempt. `as_of` is when the cluster was in that state, not when we read it."""

    replicas: tuple[ReplicaSeen, ...] = ()
    as_of: datetime | None = None  # None: the cluster gave no answer
    is_fresh: bool = True  # False while the view is known to lag
    is_sealed: bool = False  # the attempt is closed: a late call can create nothing in it any more


@dataclass(frozen=True)
class Verdict:
    """What the replicas say together: "succeeded", "failed" with words, or "open"."""

    outcome: str
    message: str = ""
    is_port_taken: bool = False


def verdict(roles: Iterable[RoleView], replicas: Iterable[ReplicaSeen]) -> Verdict:
    """Succeeded when every replica of the completing roles succeeded; failed when an essential one did not."""
    by_role: dict[str, list[ReplicaSeen]] = {}
    for replica in replicas:
        by_role.setdefault(replica.role, []).append(replica)
    roles = tuple(roles)
    completing = [role for role in roles if role.completes]
    if completing and all(_all_succeeded(role, by_role.get(role.name, [])) for role in completing):
        return Verdict("succeeded")
    for role in roles:
        for replica in by_role.get(role.name, []):
            if role.essential and replica.state in (ReplicaState.FAILED, ReplicaState.LOST):
                return Verdict("failed", describe_end(replica), replica.reason == PORT_TAKEN)
    return Verdict("open")


def describe_end(replica: ReplicaSeen) -> str:
    """How one replica ended, in words: "worker-1 exited with code 1"."""
    name = f"{replica.role}-{replica.index}"
    if replica.state is ReplicaState.LOST:
        return f"{name} vanished: {replica.reason or 'it ended without reporting how'}"
    why = f": {replica.reason}" if replica.reason else ""
    if replica.signal:
        return f"{name} was ended by signal {replica.signal}{why}"
    code = "" if replica.exit_code is None else f" with code {replica.exit_code}"
    return f"{name} exited{code}{why}"


def _all_succeeded(role: RoleView, replicas: list[ReplicaSeen]) -> bool:
    done = {replica.index for replica in replicas if replica.state is ReplicaState.SUCCEEDED}
    return len(done) >= role.replicas
