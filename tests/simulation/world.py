"""A simulated world of one job with every kind of fault: crashes, paused processes, lost and duplicated messages,
calls that land late, stale views. It drives the real `visit`, `decide`, lease and adapters.

Every visit is a greenlet that pauses at each port call; the world chooses which one continues. `guards` names the
protections: with one removed, a violation must show.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import greenlet

from common.errors import LeaseLost, Sealed, Unreachable
from jobs.clusters import Expected
from jobs.control.reconciler import Held, visit
from jobs.core import lease as leases
from jobs.core.attempt_ref import AttemptRef
from jobs.core.lifecycle import (
    HOLDS_QUOTA,
    ON_CLUSTER,
    STEPS,
    TERMINAL,
    JobView,
    Phase,
    Step,
    StopReason,
    after,
    applied,
)
from jobs.core.plan import Plan, Role, numbered
from jobs.core.replacement import Key, unconfirmed
from jobs.core.verdict import Seen

GUARDS = frozenset({"token", "seal", "freshness"})
RUN = "1-sim"
ACCUSATIONS = (StopReason.FAILED, StopReason.RETRY)
FIRST = 0
Roles = tuple[Role, ...]
STRICT: Roles = (Role("worker", 2, 1, ("true",)),)
ELASTIC: Roles = (Role("worker", 3, 1, ("true",), least=2, anchor=FIRST),)
# The head's end decides; a worker may fail the attempt and cannot complete it.
HEADED: Roles = numbered(Role("head", 1, 1, ("true",)), Role("worker", 2, 1, ("true",), completes=False))


def expected(roles: Roles) -> Expected:
    return [(role.name, index) for role in roles for index in range(role.replicas)]


class Violation(AssertionError):
    pass


@dataclass
class Row:
    """The job's row in Postgres."""

    view: JobView
    lease: leases.Lease = field(default_factory=leases.Lease)
    due: datetime | None = None
    steps: list[tuple[Phase, Phase]] = field(default_factory=list)


class SimStore:
    """Rows in memory under the real lease rules. Each method is one transaction, with a switch before and after."""

    def __init__(self, row: Row, switch: Callable[[], None], guards: frozenset[str], roles: Roles):
        self.row, self.switch, self.guards, self.roles = row, switch, guards, roles
        self.guilty: set[int] = set()  # attempts that really had to end: one replica, or too many, failed or vanished
        self.replaced = 0

    def take(self, job: int, *, owner: str, now: datetime) -> Held | None:
        self.switch()
        taken = leases.take(self.row.lease, owner, now)
        if taken is None:
            self.row.due = now
            return None
        self.row.lease = taken
        self.switch()
        return self._held(taken.token)

    def record(self, held: Held, *, seen: Seen, step: Step, now: datetime) -> Held:
        self.switch()
        self._mine(held)
        before = self.row.view
        self.replaced += len(step.replace)
        if (step.to is not None or step.replace) and ("token" not in self.guards or before.phase is held.view.phase):
            # Without the token the late writer's stale view wins, as when a stale object is saved.
            base = before if "token" in self.guards else held.view
            self.row.view = after(base, step, now)
            self._check(before, self.row.view)
        self.switch()
        return self._held(held.token)

    def record_applied(self, held: Held, *, now: datetime) -> Held:
        self.switch()
        self._mine(held)
        self.row.view = applied(self.row.view, now)
        return self._held(held.token)

    def release(self, held: Held, *, due: datetime | None) -> None:
        self.switch()
        self._mine(held)
        self.row.lease = leases.release(self.row.lease)
        self.row.due = due

    def report_trouble(self, held: Held, trouble: str) -> None:
        self.switch()

    def note(self, held: Held, words: str) -> None:
        self.switch()

    def plan(self, held: Held) -> Plan:
        there = {key: place.incarnation for key, place in held.view.places.items()}
        only = frozenset(unconfirmed(held.view.places)) if held.view.applied_at else None
        return Plan(RUN, held.view.attempt, self.roles, incarnations=there, wanted=only)

    def _held(self, token: int) -> Held:
        return Held(1, token, self.row.view, "sim", RUN, expected(self.roles), grace_seconds=5)

    def _mine(self, held: Held) -> None:
        if "token" in self.guards and not leases.is_mine(self.row.lease, held.token):
            raise LeaseLost("sim")

    def _check(self, before: JobView, now: JobView) -> None:
        if before.phase in TERMINAL:
            raise Violation(f"a finished job went from {before.phase} to {now.phase}")
        if before.phase is not now.phase:
            self.row.steps.append((before.phase, now.phase))
            if (before.phase, now.phase) not in STEPS:
                raise Violation(f"illegal step {before.phase} -> {now.phase}")
            if now.stop_reason in ACCUSATIONS and now.phase is Phase.STOPPING and before.attempt not in self.guilty:
                raise Violation(f"attempt {before.attempt} is called {now.stop_reason}, but nothing of it failed")


class SimCluster:
    """Wraps a real adapter: calls take time and may land late, and views may be stale."""

    def __init__(self, adapter, world: "World"):
        self.adapter, self.world = adapter, world

    def apply(self, plan: Plan) -> None:
        self._travel(lambda: self.adapter.apply(plan))

    def delete(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        self._travel(lambda: self.adapter.delete(ref, grace_seconds, is_now=is_now))

    def end_replicas(self, ref: AttemptRef, places: Expected, grace_seconds: int) -> None:
        self._travel(lambda: self.adapter.end_replicas(ref, places, grace_seconds))

    def observe(self, ref: AttemptRef, expected: Expected) -> Seen:
        self.world.switch()
        if self.world.is_cut:
            raise Unreachable("sim")
        seen = self.world.picture(ref.number)
        self.world.switch()
        return seen

    def changes(self):
        raise NotImplementedError

    def _travel(self, call: Callable[[], None]) -> None:
        """Once sent, the call lands even if its caller crashes."""
        self.world.switch()
        if self.world.is_cut:
            raise Unreachable("sim")
        flight = Flight(call)
        self.world.flights.append(flight)
        self.world.switch()
        flight.land()
        self.world.switch()


class Flight:
    def __init__(self, call: Callable[[], None]):
        self.call, self.has_landed = call, False

    def land(self) -> None:
        if not self.has_landed:
            self.has_landed = True
            self.call()


class World:
    """One job, one adapter, one seed."""

    def __init__(self, seed: int, make_adapter, guards: frozenset[str] = GUARDS, roles: Roles = STRICT):
        self.random = random.Random(seed)
        self.seconds = 1_700_000_000.0
        self.guards, self.roles = guards, roles
        self.is_elastic = any(role.least is not None for role in roles)
        self.is_cut = False
        self.lag = 0.0
        self.flights: list[Flight] = []
        self.visits: list[greenlet.greenlet] = []
        self.pictures: dict[int, list[tuple[float, Seen]]] = {}
        self.finished_attempts: set[int] = set()
        self.present: dict[int, set[Key]] = {}
        self.unwell: dict[int, set[Key]] = {}  # attempt -> indices whose replica ever failed or vanished
        self.adapter = make_adapter(self)
        views = tuple(role.view() for role in roles)
        view = JobView(Phase.QUEUED, self.now(), max_retries=self.random.choice([0, 1, 3]), roles=views)
        self.row = Row(view, due=self.now())
        self.store = SimStore(self.row, self.switch, guards, roles)
        self.cluster = SimCluster(self.adapter, self)

    # -- the environment of the code under test

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def switch(self) -> None:
        """Yield control to the world, which may never resume this visit."""
        parent = greenlet.getcurrent().parent
        if parent is not None:
            parent.switch()

    def picture(self, attempt: int) -> Seen:
        """The cluster's answer: the newest view that is at least `lag` seconds old."""
        history = self.pictures.get(attempt, [])
        old = [(at, seen) for at, seen in history if at <= self.seconds - self.lag]
        at, seen = old[-1] if old else (self.seconds - self.lag, Seen())
        as_of = self.now() if "freshness" not in self.guards else datetime.fromtimestamp(at, UTC)
        return replace(seen, as_of=as_of, is_sealed=seen.is_sealed or "seal" not in self.guards)

    # -- actions of the world

    def run(self, actions: int = 160) -> None:
        choices = list(ACTIONS)
        weights = [weight for _, weight in choices]
        if self.is_elastic:  # replicas end often, and users rarely interfere
            weights = [CALM.get(act.__name__, weight) for act, weight in choices]
        for _ in range(actions):
            act = self.random.choices(choices, weights)[0][0]
            act(self)
            self.look()
        self.settle()

    def settle(self) -> None:
        """End all faults: pending visits die and calls land, then only complete visits run. The job must come to rest."""
        self.is_cut, self.lag = False, 0.0
        for one in self.visits:
            one.throw(greenlet.GreenletExit)
        self.visits.clear()
        for flight in self.flights:
            self._land(flight)
        self.look()
        for _ in range(60):
            self.seconds += 8
            self.tick(admit=True)
            self.adapter_world.finish_all(self)
            self.look()
            if self.row.view.phase in TERMINAL or self.row.view.phase is Phase.SUSPENDED:
                return
        raise Violation(f"stuck in {self.row.view.phase}")

    def tick(self, admit: bool = False) -> None:
        if admit:
            self.admit()
        self.open_visit()
        one = self.visits.pop()
        while not one.dead:
            one.switch()
            self.look()

    def open_visit(self) -> None:
        if len(self.visits) < 4:

            def body() -> None:
                visit(1, store=self.store, clusters=lambda _: self.cluster, clock=self.now, owner="sim")

            self.visits.append(greenlet.greenlet(body))

    def go_on(self) -> None:
        if self.visits:
            one = self.random.choice(self.visits)
            for _ in range(self.random.randint(1, 8)):
                if not one.dead:
                    one.switch()
                    self.look()
            self.visits = [one for one in self.visits if not one.dead]

    def crash(self) -> None:
        if self.visits:
            one = self.visits.pop(self.random.randrange(len(self.visits)))
            one.throw(greenlet.GreenletExit)

    def land_late(self) -> None:
        if self.flights:
            self._land(self.random.choice(self.flights))

    def _land(self, flight: Flight) -> None:
        try:
            flight.land()
        except Sealed:
            pass

    def pass_time(self) -> None:
        self.seconds += self.random.choice([0.05, 0.2, 1.0, 3.0, 40.0])

    def admit(self) -> None:
        view = self.row.view
        if view.phase is Phase.QUEUED and not view.is_cancel_requested and not view.is_suspended:
            self.row.view = replace(view, phase=Phase.ADMITTED, phase_since=self.now())
            self.row.steps.append((Phase.QUEUED, Phase.ADMITTED))

    def ask(self) -> None:
        view, kind = self.row.view, self.random.random()
        if view.phase in TERMINAL:
            return
        if kind < 0.1:
            self.row.view = replace(view, is_cancel_requested=True, is_now_requested=kind < 0.05)
        elif kind < 0.5:
            self.row.view = replace(view, is_suspended=not view.is_suspended)
        elif view.phase in ON_CLUSTER:
            self.row.view = replace(view, is_preempt_requested=True)

    def cut(self) -> None:
        self.is_cut = not self.is_cut

    def change_lag(self) -> None:
        self.lag = self.random.choice([0.0, 0.0, 0.5, 2.0, 10.0])

    def replicas_move(self) -> None:
        self.adapter_world.move(self)

    def victim(self, living: list):
        """Choose a replica; of an elastic job seldom the first one, whose end ends the attempt. Items of `living` end with the index."""
        spared = [one for one in living if str(one[-1]) != str(FIRST)]
        is_spared = self.is_elastic and spared and self.random.random() < 0.95
        return self.random.choice(spared if is_spared else living)

    def ending(self) -> int | None:
        """An exit code, or None for an end without a report."""
        return self.random.choice([0, 1, 1, None] if self.is_elastic else [0, 0, 0, 1, None])

    # -- invariants

    def look(self) -> None:
        """Record a view of the cluster, and check the invariants."""
        alive = self.adapter_world.alive(self)
        attempts = sorted({attempt for attempt, *_ in alive})
        if len(places := [(attempt, role, index) for attempt, role, index in alive]) > len(set(places)):
            raise Violation(f"two replicas train at one place: {places}")
        if len(attempts) > 1:
            raise Violation(f"attempts {attempts} train at once")
        if attempts and self.row.view.phase not in HOLDS_QUOTA:
            raise Violation(f"attempt {attempts[0]} lives while the job is {self.row.view.phase}")
        for attempt in range(1, self.row.view.attempt + 1):
            seen = self.adapter.observe(AttemptRef(RUN, attempt), expected(self.roles))
            self.pictures.setdefault(attempt, []).append((self.seconds, seen))
            completing = {role.name for role in self.roles if role.completes}
            if all(one.state == "succeeded" for one in seen.replicas if one.role in completing):
                self.finished_attempts.add(attempt)
            unwell = self.unwell.setdefault(attempt, set())
            unwell |= {(one.role, one.index) for one in seen.replicas if one.state in ("failed", "lost")}
            unwell |= self._vanished(attempt, seen)
            if self._has_to_end(unwell | self._too_late(seen)):
                self.store.guilty.add(attempt)
        view = self.row.view
        if self.finished_attempts and view.attempt > min(self.finished_attempts):
            raise Violation(
                f"attempt {min(self.finished_attempts)} had finished, and attempt {view.attempt} was started"
            )

    def _has_to_end(self, unwell: set[Key]) -> bool:
        for role in self.roles:
            theirs = {index for name, index in unwell if name == role.name}
            if role.least is None and theirs and role.essential:
                return True
            if role.least is not None and (role.anchor in theirs or role.replicas - len(theirs) < role.least):
                return True
        return False

    def _too_late(self, seen: Seen) -> set[Key]:
        """Replicas still pending when the first one has succeeded: they find no rendezvous."""
        anchors = {(role.name, role.anchor) for role in self.roles if role.anchor is not None}
        over = {one.role for one in seen.replicas if (one.role, one.index) in anchors and one.state == "succeeded"}
        return {(one.role, one.index) for one in seen.replicas if one.role in over and one.state == "pending"}

    def _vanished(self, attempt: int, seen: Seen) -> set[Key]:
        there = {(one.role, one.index) for one in seen.replicas if one.state != "absent"}
        before = self.present.setdefault(attempt, set())
        before |= there
        return before - there

    @property
    def adapter_world(self):
        return self.adapter.world


ACTIONS: tuple[tuple[Callable[[World], None], float], ...] = (
    (World.go_on, 36),
    (World.open_visit, 14),
    (World.pass_time, 12),
    (World.admit, 8),
    (World.replicas_move, 4),
    (World.crash, 10),
    (World.land_late, 1),
    (World.ask, 8),
    (World.change_lag, 4),
    (World.cut, 1),
)
CALM = {"ask": 0.5, "replicas_move": 3, "crash": 6, "go_on": 60}
