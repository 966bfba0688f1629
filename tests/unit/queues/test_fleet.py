"""Whether a job finds room on the nodes that are there, case by case, and what holds for all of them."""

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.admission import (
    Admit,
    Code,
    Decision,
    FleetState,
    Gang,
    Holding,
    Node,
    Pending,
    Policy,
    QueueState,
    Wait,
    decide,
    forecast,
    gang,
)
from queues.admission.fleet import Fleet
from queues.admission.snapshot import Range
from tests.support.schedules import schedules

NOW = 1000.0
STRICT, BACKFILL, BEST_EFFORT = Policy


def fleet(*free: int, placed: dict[int, dict[str, int]] | None = None, **more: Any) -> FleetState:
    """Nodes n0, n1 and so on with so many GPUs."""
    return FleetState({f"n{number}": gpus for number, gpus in enumerate(free)}, placed or {}, **more)


def job(number: int, replicas: int, each: int, **values: Any) -> Pending:
    asked = {"gpu": replicas * each}
    return Pending(number, "q", asked, submitted=float(number), gang=((each, replicas),), **values)


def queue(
    state: FleetState | None, *holding: Holding, quota: int = 100, policy: Policy = STRICT, **more: Any
) -> QueueState:
    used = {"gpu": sum(one.amount for one in holding)}
    return QueueState("q", {"gpu": quota}, used, holding=holding, policy=policy, fleet=state, **more)


def held(number: int, slots: int, **values: Any) -> Holding:
    return Holding(number, {"gpu": slots}, queue="q", **values)


def codes(state: QueueState, *pending: Pending) -> dict[int, Code | None]:
    return {one.job: one.why.code if isinstance(one, Wait) else None for one in decide([state], pending, now=NOW)}


NO_NODES, FRAGMENTED, NO_NODE_SHAPE, NO_PLACE, BEHIND = (
    Code.NO_NODES, Code.FRAGMENTED, Code.NO_NODE_SHAPE, Code.NO_PLACE, Code.BEHIND,
)  # fmt: skip
HALF = {101: {"n0": 4}, 102: {"n1": 4}}


@pytest.mark.parametrize(
    ("case", "state", "asked", "expected"),
    [
        ("nodes that are not known keep nobody waiting", None, [(1, 64)], [None]),
        ("a node for each of two replicas", fleet(8, 8), [(2, 8)], [None]),
        ("two replicas share a node", fleet(8), [(2, 4)], [None]),
        ("half of each node is free, and it needs a whole one", fleet(8, 8, placed=HALF), [(1, 8)], [FRAGMENTED]),
        ("less is free than it needs", fleet(8, placed={101: {"n0": 6}}), [(1, 4)], [NO_NODES]),
        ("no node is so large", fleet(4, 4), [(1, 8)], [NO_NODE_SHAPE]),
        ("too few nodes are so large", fleet(8, 8, 4), [(3, 8)], [NO_NODE_SHAPE]),
        ("no node takes pods", fleet(), [(1, 1)], [NO_NODE_SHAPE]),
        ("what no nodes could take holds up nobody", fleet(4, 4), [(1, 8), (1, 4)], [NO_NODE_SHAPE, None]),
        ("behind what waits for nodes nobody starts (strict)", fleet(8, 8, placed=HALF), [(1, 8), (1, 4)], [FRAGMENTED, BEHIND]),
        ("the first job takes the room of the second", fleet(8), [(1, 6), (1, 4)], [None, NO_NODES]),
        ("a small job goes where least is left", fleet(8, 8, placed={101: {"n0": 4}}), [(1, 4), (1, 8)], [None, None]),
        (
            "jobs that hold quota and are nowhere yet have room kept",
            fleet(8, 8, unplaced=((101, ((8, 1),)),)), [(2, 8)], [NO_NODES],
        ),
        ("more is held on a node than it offers", fleet(4, placed={101: {"n0": 8}}), [(1, 1)], [NO_NODES]),
        (
            "Kubernetes just found no node for pods of the same shape",
            fleet(8, 8, refused={"": (4, 101)}), [(1, 8)], [NO_PLACE],
        ),
        ("smaller pods may find one", fleet(8, 8, refused={"": (4, 101)}), [(1, 2)], [None]),
        ("so may pods that ask for something else", fleet(8, 8, refused={"other": (1, 101)}), [(1, 2)], [None]),
    ],
)  # fmt: skip
def test_a_gang_needs_room_on_nodes(case, state, asked, expected):
    pending = [job(number, replicas, each) for number, (replicas, each) in enumerate(asked, 1)]
    assert list(codes(queue(state), *pending).values()) == expected, case


@pytest.mark.parametrize(
    ("state", "asked", "words"),
    [
        (
            fleet(8, 8, placed=HALF), (1, 8),
            "needs a node with 8 GPUs; 8 GPUs are free, at most 4 on one node, which is no such room; 2 x 4 would fit now",
        ),
        (
            fleet(8, 8, 8, placed={101: {"n0": 5}, 102: {"n1": 6}, 103: {"n2": 8}}), (5, 1),
            "",
        ),
        (
            fleet(8, 8, 8, placed={101: {"n0": 5}, 102: {"n1": 5}}), (3, 4),
            "needs room for 3 x 4 GPUs, each on one node; 14 GPUs are free, at most 8 on one node, which is room for 2 of these; 4 x 3 would fit now",
        ),
        (fleet(8, placed={101: {"n0": 7}}), (1, 4), "needs a node with 4 GPUs, and the nodes that take pods have 1 GPU free in all"),
        (
            fleet(8, 4), (2, 8),
            "needs 2 nodes with 8 GPUs, and those that take pods have room for 1 in all; starts when more nodes take pods, or submit a smaller job",
        ),
        (
            fleet(4, 4), (2, 8),
            "needs 2 nodes with 8 GPUs, and the largest that takes pods has 4; starts when more nodes take pods, or submit a smaller job",
        ),
        (
            fleet(8, refused={"": (8, 101)}), (1, 8),
            "Kubernetes finds no node for the pods of job 101, which ask for the same; starts when that job has its nodes, or has given up its start",
        ),
    ],
)  # fmt: skip
def test_the_sentence_says_what_nodes_lack_and_what_would_fit(state, asked, words):
    (found,) = decide([queue(state)], [job(1, *asked)], now=NOW)
    assert (found.reason if isinstance(found, Wait) else "") == words


def test_programs_get_the_numbers():
    (found,) = decide([queue(fleet(8, 8, placed=HALF))], [job(1, 2, 8)], now=NOW)
    assert isinstance(found, Wait) and found.why.numbers == {
        "needs": {"gpu": 16}, "free": {"gpu": 8}, "replicas": 2, "each": 8, "largest": 4,
    }  # fmt: skip


def test_a_job_of_several_roles_needs_room_for_all_of_them():
    roles = replace(job(1, 1, 8), asked={"gpu": 20}, gang=gang([(8, 1), (0, 5), (4, 3)]))
    assert roles.gang == ((8, 1), (4, 3))
    assert codes(queue(fleet(8, 8, 4)), roles) == {1: None}
    assert codes(queue(fleet(8, 8)), roles) == {1: NO_NODE_SHAPE}


BUSY = fleet(8, 8, placed={101: {"n0": 8}, 102: {"n1": 4}})
UNTIL_60 = (held(101, 8, ends_by=NOW + 60), held(102, 4, ends_by=NOW + 500))


@pytest.mark.parametrize(
    ("case", "longest", "expected"),
    [
        ("it ends before the first one has its node", 60.0, None),
        ("nobody knows when it ends, and beside the first one there is room", None, None),
    ],
)
def test_backfill_passes_a_job_that_waits_for_a_node(case, longest, expected):
    state = queue(BUSY, *UNTIL_60, policy=BACKFILL)
    assert codes(state, job(1, 1, 8), job(2, 1, 4, longest=longest))[2] is expected, case


def test_backfill_keeps_the_nodes_that_the_first_job_waits_for():
    state = queue(BUSY, *UNTIL_60, policy=BACKFILL)
    waits = codes(state, job(1, 2, 8), job(2, 1, 4), job(3, 1, 4, longest=400.0))
    assert waits == {1: NO_NODES, 2: Code.RESERVED_FOR, 3: None}, "both nodes are its own in 500 s"


def test_without_deadlines_nobody_passes_a_job_that_waits_for_a_node():
    state = queue(BUSY, held(101, 8), held(102, 4), policy=BACKFILL)
    assert codes(state, job(1, 1, 8), job(2, 1, 4, longest=1.0)) == {1: NO_NODES, 2: BEHIND}


def test_best_effort_passes_it():
    assert codes(queue(BUSY, policy=BEST_EFFORT), job(1, 1, 8), job(2, 1, 4)) == {1: NO_NODES, 2: None}


def test_jobs_are_preempted_only_where_that_makes_room_on_nodes():
    state = fleet(8, 8, placed={101: {"n0": 2}, 102: {"n1": 2}, 103: {"n1": 6}})
    holding = (held(101, 2, lost=9.0), held(102, 2), held(103, 6, priority=9))
    busy = queue(state, *holding, preempts=True)
    (found,) = decide([busy], [job(1, 1, 8, priority=5)], now=NOW)
    assert isinstance(found, Wait) and found.why.code is Code.PREEMPTING
    assert found.victims == (101,), "without 102, which loses less, n1 is still not free"
    (found,) = decide([busy], [job(1, 2, 8, priority=5)], now=NOW)
    assert isinstance(found, Wait) and found.victims == () and found.why.code is NO_NODES, "103 has the higher priority"


def test_who_is_told_that_nodes_are_kept():
    state = fleet(8, 8, placed={101: {"n0": 4}})
    leaving = held(101, 4, is_leaving=True, is_preempted=True)
    busy = queue(state, leaving, policy=BEST_EFFORT)
    first, second, third = decide([busy], [job(1, 2, 8), job(2, 1, 8), job(3, 1, 8)], now=NOW)
    assert isinstance(first, Wait) and first.why.code is Code.PREEMPTING
    for one in (second, third):
        assert isinstance(one, Wait) and one.why.code is Code.RESERVED_FOR
        assert one.reason == "needs 8 GPUs; the nodes that have room are kept for job 1, for which other jobs leave"


@pytest.mark.parametrize(
    ("case", "whole", "expected"),
    [
        ("pods of others hold what it needs", {"n0": 8, "n1": 8}, NO_NODES),
        ("a node will soon be back", {"n0": 8, "n1": 4, "n2": 8}, NO_NODES),
        ("there are no such nodes", {"n0": 8, "n1": 4}, NO_NODE_SHAPE),
    ],
)
def test_what_holds_nodes_for_a_while_puts_no_job_out_of_line(case, whole, expected):
    state = queue(fleet(8, 4, whole=whole))
    waits = codes(state, job(1, 2, 8), job(2, 1, 4))
    assert waits[1] is expected, case
    assert waits[2] is (BEHIND if expected is NO_NODES else None), case


def test_what_was_preempted_for_a_node_is_awaited():
    state = fleet(8, placed={101: {"n0": 2}})
    leaving = held(101, 2, is_leaving=True, is_preempted=True)
    (found,) = decide([queue(state, leaving, preempts=True)], [job(1, 1, 8, priority=5)], now=NOW)
    assert isinstance(found, Wait) and found.why.code is Code.PREEMPTING and found.why.jobs == (101,)
    assert found.victims == (), "it was asked already"


def test_a_start_is_foreseen_for_when_nodes_are_free():
    holding = (held(101, 8, remaining=Range(50.0, 60.0)), held(102, 4, remaining=Range(10.0, 20.0)))
    state = queue(BUSY, *holding)
    found = forecast([state], [job(1, 2, 8, expected=Range(5.0, 5.0)), job(2, 1, 1)], now=NOW)
    assert found[1] == Range(50.0, 60.0) and found[2] == Range(55.0, 65.0)
    assert 3 not in forecast([state], [job(3, 3, 8)], now=NOW), "not while only two nodes take pods"


# -- for all nodes and jobs

nodes = st.lists(st.integers(0, 8), min_size=1, max_size=4)
gangs = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 2)), min_size=1, max_size=2).map(gang)


def is_possible(free: list[int], parts: Gang) -> bool:
    """Whether any choice of nodes for the replicas is within what each has."""
    replicas = [gpus for gpus, count in parts for _ in range(count)]
    return any(
        all(sum(gpus for gpus, at in zip(replicas, places, strict=True) if at == number) <= has for number, has in enumerate(free))
        for places in product(range(len(free)), repeat=len(replicas))
    )  # fmt: skip


@given(nodes, gangs)
@schedules(400)
def test_what_does_not_fit_has_no_place_whatever_one_tries(free, parts):
    fits = Fleet(fleet(*free)).fits(parts)
    if len(parts) == 1:
        assert fits == is_possible(free, parts)
    else:
        assert fits or not is_possible(free, parts)


@given(nodes, st.lists(gangs, max_size=3), gangs)
@schedules(300)
def test_what_is_taken_comes_back(free, before, parts):
    state = fleet(*free, unplaced=tuple(enumerate(before, 101)))
    found, untouched = Fleet(state), Fleet(state)
    found.take(1, parts)
    assert untouched.free - found.free <= sum(gpus * count for gpus, count in parts)
    assert found.free >= 0
    found.give_back(1)
    assert (found.free, found.largest) == (untouched.free, untouched.largest)
    copied = found.copy()
    copied.take(2, parts)
    assert found.free == untouched.free, "a copy is one's own"


@given(nodes, st.lists(st.tuples(st.integers(1, 3), st.integers(1, 8)), max_size=8), st.sampled_from(list(Policy)))
@schedules(300)
def test_what_is_admitted_together_fits_together(free, asked, policy):
    pending = [job(number, *one) for number, one in enumerate(asked, 1)]
    state = queue(fleet(*free), policy=policy)
    decisions = decide([state], pending, now=NOW)
    started = {one.job for one in decisions if isinstance(one, Admit)}
    taken = gang(part for one in pending if one.job in started for part in one.gang)
    assert Fleet(fleet(*free)).fits(taken)
    assert decide([state], reversed(pending), now=NOW) == decisions
    if policy is BEST_EFFORT:
        rest = Fleet(fleet(*free))
        for one in sorted(pending, key=lambda one: one.order):
            if one.job in started:
                rest.take(one.job, one.gang)
        assert not any(rest.fits(one.gang) for one in pending if one.job not in started)


@dataclass
class Cluster:
    """Two teams of a cohort on some nodes, played until every job has ended; each job is placed where least is left."""

    gpus: dict[str, int]
    waiting: dict[int, Pending]
    seconds: dict[int, float]
    policy: Policy
    preempts: bool
    running: dict[int, Holding] = field(default_factory=dict)
    places: dict[int, dict[str, int]] = field(default_factory=dict)
    claims: set[int] = field(default_factory=set)

    def decide(self, now: float) -> list[Decision]:
        state = FleetState(self.gpus, self.places)
        queues = []
        for name in "ab":
            held = tuple(one for one in self.running.values() if one.queue == name)
            used = {"gpu": sum(one.amount for one in held)}
            queues.append(
                QueueState(
                    name, {"gpu": 8}, used, policy=self.policy, holding=held, preempts=self.preempts, fleet=state
                )
            )
        pending = [replace(one, is_claiming=one.job in self.claims) for one in self.waiting.values()]
        return decide(queues, pending, nodes=COHORT, now=now)

    def play(self) -> int:
        """Return how many jobs were preempted."""
        every, ends, now, preempted = dict(self.waiting), dict[int, float](), 0.0, 0
        for _ in range(1000):
            decisions = self.decide(now)
            for one in decisions:
                if isinstance(one, Admit):
                    job = self.waiting.pop(one.job)
                    nodes = Fleet(FleetState(self.gpus, self.places))
                    nodes.take(job.job, job.gang)
                    self.places[job.job] = nodes.give_back(job.job)
                    assert sum(self.places[job.job].values()) == job.amount, "what was admitted has its nodes"
                    self.running[job.job] = Holding(
                        job.job, job.asked, queue=job.queue, priority=job.priority, lost=now
                    )
                    ends[job.job] = now + self.seconds[job.job]
            waits = [one for one in decisions if isinstance(one, Wait)]
            self.claims = {one.job for one in waits if one.why.code is Code.PREEMPTING}
            for victim in {victim for one in waits for victim in one.victims}:
                preempted += 1
                self.running[victim] = replace(self.running[victim], is_leaving=True, is_preempted=True)
                ends[victim] = min(ends[victim], now + 0.01)
            if not ends:
                never = {Code.EXCEEDS_MAXIMUM, Code.NO_NODE_SHAPE}
                assert all(one.why.code in never for one in waits), "who could start has started"
                return preempted
            now, gone = min((at, job) for job, at in ends.items())
            ended = self.running.pop(gone)
            del ends[gone], self.places[gone]
            if ended.is_preempted:
                self.seconds[gone] = max(0.1, self.seconds[gone] - (now - ended.lost))
                self.waiting[gone] = every[gone]
        raise AssertionError("jobs are preempted without end")


COHORT = [
    Node("cohort"),
    *(node for name in "ab" for node in (Node(f"team {name}", "cohort"), Node(name, f"team {name}", 8))),
]
asked = st.tuples(st.integers(1, 2), st.integers(1, 8), st.sampled_from("ab"), st.integers(0, 2), st.integers(1, 30))


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4), st.lists(asked, max_size=8), st.sampled_from(list(Policy)), st.booleans()
)  # fmt: skip
@schedules(300)
def test_on_nodes_everybody_starts_in_the_end_and_no_two_preempt_each_other_without_end(free, jobs, policy, preempts):
    waiting, seconds = {}, {}
    for number, (replicas, each, name, priority, lasts) in enumerate(jobs, 1):
        waiting[number] = replace(job(number, replicas, each), queue=name, priority=priority)
        seconds[number] = float(lasts)
    gpus = {f"n{number}": count for number, count in enumerate(free)}
    count = Cluster(gpus, waiting, seconds, policy, preempts).play()
    assert count <= len(jobs) ** 2, (count, free, jobs, policy, preempts)
