"""A cluster in memory, controlled by tests. It passes the contract tests, so code tested on it works on real ones.

Replicas come up `start_seconds` after their creation and succeed `run_seconds` after that, unless `finish`, `lose` or
`silence` intervene. `lag_seconds` makes it answer with an old state, `is_reachable = False` makes it unreachable.
`namespace` may be changed like the setting of a cluster: attempts stay in the one that they were made in.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from common.errors import Refused, Sealed, Unreachable
from jobs.core.attempt_ref import AttemptRef
from jobs.core.keeping import Errand, JobFolders, Kept
from jobs.core.node_seen import NodeSeen
from jobs.core.plan import Claim, ClaimSeen, Plan
from jobs.core.probing import Probe
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, Seen
from queues.shape import ReplicaShape
from volumes.use import Use

from . import ClusterEvent, ClusterEvents, Expected, Inspected

KEEPER_SECONDS = 600.0  # until a keeper that does not start is given up
IDLE_SECONDS = 0.2  # between two checks for changes when there were none


@dataclass
class _Replica:
    seen: ReplicaSeen
    created: float
    stop_at: float | None = None


@dataclass
class _Attempt:
    replicas: dict[tuple[str, int], _Replica] = field(default_factory=dict)
    is_sealed: bool = False
    history: list[tuple[float, Seen]] = field(default_factory=list)


class MemoryCluster:
    """The in-memory adapter. `clock` gives seconds since the epoch. Not shared between processes."""

    MOUNTS, HAS_LOGS, HAS_NODES, SEPARATES, FINDS_BY_NAME = True, False, False, True, True
    namespace = ""
    OPERATORS, MAKES_PODS, shape = frozenset({"MonarchMesh"}), True, ReplicaShape(image="memory")

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        start_seconds: float = 0.0,
        run_seconds: float = 1.0,
        *,
        stop_seconds: float = 0.0,
    ):
        self.clock = clock
        self.start_seconds, self.run_seconds, self.stop_seconds = start_seconds, run_seconds, stop_seconds
        self.lag_seconds = 0.0
        self.is_reachable = True
        self.creations: list[tuple[str, int, str, int]] = []
        self._attempts: dict[AttemptRef, _Attempt] = {}
        self._changed: list[str] = []
        self.claims: dict[str, Claim] = {}  # that were made, by name; `bound` ones have storage
        self.bound: dict[str, str] = {}  # their capacities
        self.elsewhere: set[tuple[str, str]] = set()  # namespaces besides its own that have a claim of this name too
        self.without_rights: set[str] = set()  # namespaces
        self.may_make_namespaces = False
        self.made: list[str] = []  # namespaces
        self.egress: tuple[str, ...] | None = None
        self.egress_allowed: tuple[str, ...] = ("10.0.0.0/8",)
        self.classes: dict[str, str] | None = {"": "memory", "shared": "memory"}
        self.lacks = ""  # what it has not, that Muster needs
        self.no_claims = ""  # why claims are not made
        self.job_claim = ""  # in whose folders jobs write
        self.folders: dict[str, set[str]] = {}  # there, by claim
        self.stuck_folders: dict[str, str] = {}  # why they cannot be deleted
        self.use = Use(100, 40, 1.0)  # what a keeper sees
        self.keepers: dict[str, tuple[Errand, float]] = {}  # by claim, with the time when they were made
        self.keepers_start = True
        self.probes: dict[str, Probe] = {}  # checks that have pods, by uid
        self.probes_answer = True
        self.told: dict[str, tuple[ClusterEvent, ...]] = {}  # Events by run
        self.nodes: dict[str, dict[str, str]] = {}  # labels by name; none: it does not say what nodes it has
        self.listed: list[NodeSeen] | None = None  # its nodes as it lists them; None: it may not
        self.adds_nodes = False

    def inspect(self) -> list[Inspected]:
        self._answer()
        return [Inspected("rights", "wrong", self.lacks)] if self.lacks else [Inspected("rights", "ok", "has all")]

    def inspect_rights(self, namespace: str) -> list[Inspected]:
        self._answer()
        if namespace in self.without_rights:
            return [Inspected("rights", "wrong", "the account may not create pods there", "kubectl apply", "somebody")]
        return [Inspected("rights", "ok", "has all")]

    def make_namespace(self, name: str) -> None:
        self._answer()
        if not self.may_make_namespaces:
            raise Refused("the account may not make namespaces")
        self.made.append(name)
        self.without_rights.discard(name)

    def identity(self) -> str:
        self._answer()
        return "memory"

    def probe(self, asked: Probe, *, is_late: bool) -> list[Inspected] | None:
        self._answer()
        if asked.uid not in self.probes and not is_late:
            self.probes[asked.uid] = asked
            return None
        if not self.probes_answer:
            return [Inspected("pods", "wrong", "a pod gives no answer")] if is_late else None
        return [Inspected("pods", "ok", f"a pod of image {asked.shape.image or self.shape.image} starts")]

    def remove_probe(self, uid: str, namespace: str = "") -> bool:
        self._answer()
        return self.probes.pop(uid, None) is None  # they are gone at the next look

    def raw_events(self, ref: AttemptRef, names: Collection[str]) -> ClusterEvents:
        self._answer()
        return ClusterEvents(self.told.get(ref.run, ()))

    def node_labels(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: labels for name, labels in self.nodes.items() if name in names}

    def has_node(self, name: str) -> bool | None:
        return name in self.nodes if self.nodes else None

    def claims_of_options(self, team: str) -> Collection[str]:
        return ()

    def list_nodes(self) -> list[NodeSeen] | None:
        self._answer()
        return None if self.listed is None else list(self.listed)

    def see_claim(self, claim: Claim) -> ClaimSeen:
        self._answer()
        is_elsewhere = claim.namespace not in ("", self.namespace)
        if claim.name not in self.claims or (is_elsewhere and (claim.namespace, claim.name) not in self.elsewhere):
            return ClaimSeen()
        capacity = self.bound.get(claim.name, "")
        return ClaimSeen("bound" if capacity else "pending", capacity, "" if capacity else "waiting for a provisioner")

    def grow_claim(self, claim: Claim) -> None:
        self._answer()
        self.bound[claim.name] = claim.size

    def remove_claim(self, claim: Claim) -> bool:
        self._answer()
        self.bound.pop(claim.name, None)
        return self.claims.pop(claim.name, None) is None  # it is gone at the next look

    def storage_classes(self) -> dict[str, str] | None:
        return self.classes

    def try_claim(self, claim: Claim) -> str:
        self._answer()
        return self.no_claims

    def job_folders(self) -> JobFolders | None:
        return JobFolders(self.job_claim, "jobs") if self.job_claim else None

    def keep(self, errand: Errand) -> Kept | None:
        self._answer()
        if errand.claim not in self.keepers:
            self.keepers[errand.claim] = errand, self.clock()
            return None
        asked, since = self.keepers[errand.claim]
        is_late = self.clock() > since + KEEPER_SECONDS
        if not (self.keepers_start or is_late):
            return None
        del self.keepers[errand.claim]
        if asked.digest != errand.digest:
            return None
        if not self.keepers_start:
            return Kept(problem="it did not start: no node takes it")
        left = {name: self.stuck_folders[name] for name in errand.folders if name in self.stuck_folders}
        gone = frozenset(errand.folders) - left.keys()
        self.folders[errand.claim] = self.folders.get(errand.claim, set()) - gone
        return Kept(gone, left, use=self.use)

    def apply(self, plan: Plan) -> None:
        self._answer()
        attempt = self._attempt(plan.ref)
        if attempt.is_sealed:
            raise Sealed(f"attempt {plan.attempt} of {plan.run} is closed")
        self.claims |= {
            one.name: one
            for one in (*plan.claims.values(), *plan.job_claims.values())
            if one.size and one.name not in self.claims
        }
        for role, index in plan.replicas():
            there, incarnation = attempt.replicas.get((role.name, index)), plan.incarnation(role.name, index)
            if there is None or there.seen.incarnation < incarnation:
                seen = ReplicaSeen(
                    role.name, index, ReplicaState.PENDING, is_alive=True, incarnation=incarnation
                )  # fmt: skip
                attempt.replicas[role.name, index] = _Replica(seen, self.clock())
                self.creations.append((plan.run, plan.attempt, role.name, index))
        self._note(plan.run, attempt)

    def observe(self, ref: AttemptRef, expected: Expected) -> Seen:
        self._answer()
        current = self._attempt(ref)
        self._advance(current)
        self._note(ref.run, current)
        at, seen = self._picture(current)
        there = {(one.role, one.index): one for one in seen.replicas}
        absent = ReplicaState.ABSENT
        return replace(
            seen,
            replicas=tuple(there.get(key) or ReplicaSeen(*key, state=absent) for key in expected),
            as_of=datetime.fromtimestamp(at, UTC),
        )

    def delete(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        self._answer()
        current = self._attempt(ref)
        current.is_sealed = True
        for one in current.replicas.values():
            if one.stop_at is None:
                one.stop_at = self.clock() + min(self.stop_seconds, grace_seconds)
            if is_now:
                one.stop_at = min(one.stop_at, self.clock())
        self._advance(current)
        self._note(ref.run, current)

    def end_replicas(self, ref: AttemptRef, places: Expected, grace_seconds: int) -> None:
        self._answer()
        current = self._attempt(ref)
        for key in places:
            one = current.replicas.get(key)
            if one is not None and one.seen.state in ENDED:
                one.seen = replace(one.seen, is_alive=False)
        self._note(ref.run, current)

    def forget(self, run: str, attempt: int) -> None:
        """Lose an attempt and its seal, as a cluster restored from an older backup does."""
        self._attempts = {ref: one for ref, one in self._attempts.items() if (ref.run, ref.number) != (run, attempt)}

    def open_attempts(self, namespace: str = "") -> list[AttemptRef]:
        self._answer()
        for attempt in self._attempts.values():
            self._advance(attempt)
        return [
            ref
            for ref, attempt in self._attempts.items()
            if ref.namespace == (namespace or self.namespace)
            and attempt.replicas
            and (not attempt.is_sealed or any(one.seen.is_alive for one in attempt.replicas.values()))
        ]

    def changes(self) -> Iterator[str]:
        while True:
            changed, self._changed = self._changed, []
            yield from changed
            if not changed:
                time.sleep(IDLE_SECONDS)
            yield ""

    # -- controls for tests

    def finish(self, run: str, attempt: int, role: str, *, index: int, exit_code: int = 0, reason: str = "") -> None:
        state = ReplicaState.FAILED if exit_code else ReplicaState.SUCCEEDED
        self._set(run, attempt, role, index=index, state=state, is_alive=False, exit_code=exit_code, reason=reason)

    def lose(self, run: str, attempt: int, role: str, *, index: int) -> None:
        """Remove a replica, like a pod that was deleted by hand."""
        del self._attempts[self._found(run, attempt)].replicas[role, index]
        self._changed.append(run)

    def silence(self, run: str, attempt: int, role: str, *, index: int, node: str) -> None:
        """Lose a replica's node: it is unknown whether it still trains, so it keeps its place."""
        reason = f"its node {node} does not answer"
        self._set(run, attempt, role, index=index, state=ReplicaState.LOST, is_alive=True, node=node, reason=reason)

    def alive(self, run: str) -> list[tuple[int, str, int]]:
        """Return (attempt, role, index) of every replica of this run that occupies a place now."""
        for ref, attempt in self._attempts.items():
            if ref.run == run:
                self._advance(attempt)
        return [
            (ref.number, *key)
            for ref, attempt in sorted(self._attempts.items())
            if ref.run == run
            for key, one in attempt.replicas.items()
            if one.seen.is_alive
        ]

    # -- simulation

    def _attempt(self, ref: AttemptRef) -> _Attempt:
        return self._attempts.setdefault(ref.within(self.namespace), _Attempt())

    def _found(self, run: str, attempt: int) -> AttemptRef:
        """Return the reference of an attempt in whichever namespace it is."""
        return next(ref for ref in self._attempts if (ref.run, ref.number) == (run, attempt))

    def _answer(self) -> None:
        if not self.is_reachable:
            raise Unreachable("the cluster does not answer")

    def _set(self, run: str, attempt: int, role: str, *, index: int, **values: object) -> None:
        one = self._attempts[self._found(run, attempt)].replicas[role, index]
        one.seen = replace(one.seen, **values)  # type: ignore[arg-type]  # fields of ReplicaSeen
        self._changed.append(run)

    def _advance(self, attempt: _Attempt) -> None:
        for one in attempt.replicas.values():
            one.seen = self._next(one)

    def _next(self, one: _Replica) -> ReplicaSeen:
        now, seen = self.clock(), one.seen
        if not seen.is_alive or seen.state in ENDED:
            return seen
        if one.stop_at is not None and now >= one.stop_at:
            return replace(seen, state=ReplicaState.FAILED, is_alive=False, signal=15)
        if now >= one.created + self.start_seconds + self.run_seconds:
            return replace(seen, state=ReplicaState.SUCCEEDED, is_alive=False, exit_code=0)
        if now >= one.created + self.start_seconds:
            return replace(seen, state=ReplicaState.RUNNING)
        return seen

    def _note(self, run: str, attempt: _Attempt) -> None:
        """Store the current state, for when an old one must be returned."""
        picture = Seen(tuple(one.seen for one in attempt.replicas.values()), is_sealed=attempt.is_sealed)
        attempt.history.append((self.clock(), picture))
        self._changed.append(run)

    def _picture(self, attempt: _Attempt) -> tuple[float, Seen]:
        """Return the newest state that is at least `lag_seconds` old; an empty one if there is none."""
        limit = self.clock() - self.lag_seconds
        old = [(at, seen) for at, seen in attempt.history if at <= limit]
        del attempt.history[: max(0, len(old) - 1)]
        return old[-1] if old else (limit, Seen())
