"""Who may borrow from whom, who gives back, and what holds for every cohort."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.admission import (
    Admit,
    Code,
    Decision,
    Holding,
    Node,
    Pending,
    Policy,
    QueueState,
    Wait,
    decide,
    forecast,
    preempt,
)
from queues.admission.cohort import Tree
from queues.admission.snapshot import Range
from tests.support.schedules import schedules

NOW = 1000.0
STRICT, BACKFILL, BEST_EFFORT = Policy


def team(name: str, nominal: int, *, parent: str = "cohort", **limits: Any) -> list[Node]:
    """A team with one queue of the same name, which has all of its quota and borrows what the team may."""
    return [Node(f"team {name}", parent, **limits), Node(name, f"team {name}", nominal)]


def job(number: int, slots: int, queue: str = "a", **values: Any) -> Pending:
    return Pending(number, queue, {"gpu": slots}, submitted=float(number), **values)


def held(number: int, slots: int, priority: int = 0, lost: float = 0.0, **values: Any) -> Holding:
    return Holding(number, {"gpu": slots}, priority=priority, lost=lost, **values)


def queues(nodes: Iterable[Node], holding: Mapping[str, Sequence[Holding]], **values: Any) -> list[QueueState]:
    leaves = [node for node in nodes if not node.name.startswith(("team", "cohort"))]
    return [
        QueueState(
            node.name, {"gpu": node.nominal}, {"gpu": sum(one.amount for one in holding.get(node.name, ()))},
            holding=tuple(holding.get(node.name, ())), **values,
        )
        for node in leaves
    ]  # fmt: skip


def outcome(decisions: Iterable[Decision]) -> tuple[list[int], list[int]]:
    """The jobs that are admitted, in order, and those that are preempted."""
    admitted = [one.job for one in decisions if isinstance(one, Admit)]
    return admitted, sorted(victim for one in decisions if isinstance(one, Wait) for victim in one.victims)


TWO = [Node("cohort"), *team("a", 8), *team("b", 8)]
LENDS_TWO = [Node("cohort"), *team("a", 8), *team("b", 8, lending_limit=2)]
BORROWS_TWO = [Node("cohort"), *team("a", 8, borrowing_limit=2), *team("b", 8)]
DEEP = [Node("cohort"), Node("cohort x", "cohort"), *team("a", 4, parent="cohort x"), *team("b", 4, parent="cohort x"), *team("c", 8)]  # fmt: skip
SPARE = [Node("cohort", nominal=4), *team("a", 8), *team("b", 8)]
LENT_OUT = {"b": [held(101, 8, 2), held(102, 4, 1), held(103, 4)]}  # b has 8 of its own and all 8 of a


@pytest.mark.parametrize(
    ("case", "nodes", "holding", "pending", "admitted", "preempted"),
    [
        ("a team borrows what another does not use", TWO, {}, [job(1, 12)], [1], []),
        ("not what the other uses", TWO, {"b": [held(101, 6)]}, [job(1, 12)], [], []),
        ("not more than it may borrow", BORROWS_TWO, {}, [job(1, 10), job(2, 1)], [1], []),
        ("not more than the other lends", LENDS_TWO, {}, [job(1, 10), job(2, 1)], [1], []),
        ("what is kept from others is still the other's own", LENDS_TWO, {"a": [held(101, 10)]}, [job(1, 6, "b")], [1], []),
        ("a cohort may have quota that belongs to nobody", SPARE, {}, [job(1, 20)], [1], []),
        ("what is near is not lent before what is far", DEEP, {"c": [held(101, 8)]}, [job(1, 8)], [1], []),
        ("who stays within its own comes before who borrows, whatever their priority", TWO, {}, [job(1, 16, priority=9), job(2, 8, "b")], [2], []),
        ("of those that borrow the higher priority comes first", TWO, {}, [job(1, 12), job(2, 12, "b", priority=1)], [2], []),
        ("of equal ones the team that borrows less", SPARE, {"a": [held(101, 9)], "b": [held(102, 8)]}, [job(1, 2), job(2, 2, "b")], [2], []),
        ("what is lent comes back, from the lowest priority and the least lost work", TWO, LENT_OUT, [job(1, 4)], [], [103]),
        ("as many give back as are needed", TWO, LENT_OUT, [job(1, 8)], [], [102, 103]),
        ("who would borrow takes nothing back", TWO, LENT_OUT, [job(1, 9)], [], []),
        ("who has not come further since it was preempted is spared", TWO, {"b": [held(101, 8), held(102, 8, is_spared=True)]}, [job(1, 8)], [], [101]),
        ("nobody is preempted while others already leave", TWO, {"b": [held(101, 8), held(102, 8, is_leaving=True)]}, [job(1, 8)], [], []),
        ("what a waiting job has a right to is not lent again", TWO, {"a": [held(101, 4)], "b": [held(102, 8), held(103, 2)]}, [job(1, 4), job(2, 2, "b")], [], [103]),
        ("nobody takes a priority into account across teams", TWO, {"b": [held(101, 8)]}, [job(1, 9, priority=9)], [], []),
    ],
)  # fmt: skip
def test_who_borrows_and_who_gives_back(case, nodes, holding, pending, admitted, preempted):
    assert outcome(decide(queues(nodes, holding), pending, nodes=nodes, now=NOW)) == (admitted, preempted), case


@pytest.mark.parametrize(
    ("case", "preempts", "holding", "pending", "preempted"),
    [
        ("a higher priority takes the place of a lower one", True, [held(101, 8)], job(1, 8, priority=1), [101]),
        ("an equal one does not", True, [held(101, 8, 1)], job(1, 8, priority=1), []),
        ("nor does any where the queue does not say so", False, [held(101, 8)], job(1, 8, priority=1), []),
        ("the lowest goes first", True, [held(101, 4, 1), held(102, 4)], job(1, 4, priority=2), [102]),
        ("then the one that loses least", True, [held(101, 4, lost=60), held(102, 4, lost=5)], job(1, 4, priority=2), [102]),
        ("then the fewest", True, [held(101, 2), held(102, 2), held(103, 4)], job(1, 4, priority=2), [103]),
        ("two that lose less before one that loses more", True, [held(101, 2, lost=1), held(102, 2, lost=1), held(103, 4, lost=3)], job(1, 4, priority=2), [101, 102]),
        ("nobody goes in vain", True, [held(101, 4), held(102, 4, 5)], job(1, 8, priority=2), []),
    ],
)  # fmt: skip
def test_priority_within_a_queue(case, preempts, holding, pending, preempted):
    state = queues([Node("a", nominal=8)], {"a": holding}, preempts=preempts)
    assert outcome(decide(state, [pending], now=NOW)) == ([], preempted), case


def test_small_jobs_that_borrow_do_not_keep_a_large_one_waiting():
    holding = {"a": [held(101, 8)], "b": [held(102, 7, ends_by=NOW + 60)]}
    large = job(1, 8)
    for policy, small, expected in ((STRICT, 1, []), (BACKFILL, 1, []), (BEST_EFFORT, 1, [2])):
        state = queues(TWO, holding, policy=policy)
        found = decide(state, [large, job(2, small + 1, "b", longest=90.0)], nodes=TWO, now=NOW)
        assert outcome(found)[0] == [], "beyond what is free"
        state = queues([*TWO, *team("c", 2)], {**holding, "c": [held(103, 2)]}, policy=policy)
        found = decide(state, [large, job(2, 1, "c")], nodes=[*TWO, *team("c", 2)], now=NOW)
        assert outcome(found)[0] == expected, policy
        if not expected:
            (_, second) = found
            assert isinstance(second, Wait) and second.why.code is Code.RESERVED_FOR and second.why.job == 1
    state = queues([*TWO, *team("c", 2)], {**holding, "c": [held(103, 2)]}, policy=BACKFILL)
    found = decide(state, [large, job(2, 1, "c", longest=50.0)], nodes=[*TWO, *team("c", 2)], now=NOW)
    assert outcome(found)[0] == [2], "it is gone before the large one can start"


def test_a_job_that_must_not_delay_another_team_is_not_the_head_of_its_queue_for_that():
    nodes = [*TWO, *team("c", 2)]
    holding = {"a": [held(101, 8)], "b": [held(102, 7, ends_by=NOW + 60)], "c": [held(103, 2)]}
    waiting = [job(1, 8), job(2, 7, "c"), job(3, 1, "c")]
    found = decide(queues(nodes, holding, policy=BACKFILL), waiting, nodes=nodes, now=NOW)
    assert [(one.why.code, one.is_head) for one in found if isinstance(one, Wait)] == [
        (Code.WAITING_FOR_QUOTA, True), (Code.WAITING_FOR_QUOTA, True), (Code.RESERVED_FOR, False),
    ]  # fmt: skip


def test_who_borrowed_less_lately_borrows_first():
    def admitted(**recent: float) -> list[int]:
        lent = [Node("cohort"), *team("a", 8), *team("b", 2), *team("c", 2)]
        nodes = [replace(node, recent=recent.get(node.name, 0.0)) for node in lent]
        return outcome(decide(queues(nodes, {}), [job(1, 7, "b"), job(2, 7, "c")], nodes=nodes, now=NOW))[0]

    assert admitted() == [1], "the older one"
    assert admitted(b=9.0) == [2]
    assert admitted(b=9.0, c=9.5) == [1]
    assert admitted(b=1.9) == [1], "less than its own is no borrowing"


def test_reasons_say_what_may_be_borrowed_what_is_lent_and_who_gives_back():
    holding = {"b": [held(101, 6), held(102, 6, is_spared=True)]}
    (beyond,) = decide(queues(TWO, holding), [job(1, 12)], nodes=TWO, now=NOW)
    assert isinstance(beyond, Wait)
    assert beyond.reason == (
        "needs 12 GPUs; queue a may take 4 GPUs more now, of 16 GPUs with what it may borrow, and others have borrowed 4 "
        "that are its own or its team's"
    )
    (back,) = decide(queues(TWO, holding), [job(1, 8)], nodes=TWO, now=NOW)
    assert isinstance(back, Wait) and back.why.code is Code.PREEMPTING and back.victims == (101,)
    assert back.reason == "needs 8 GPUs, which job 101 was asked to give back; starts when it has ended"
    asked = {"b": [held(number, slots, is_leaving=True, is_preempted=True) for number, slots in ((101, 2), (102, 12))]}
    (waits,) = decide(queues(TWO, asked), [job(1, 8)], nodes=TWO, now=NOW)
    assert isinstance(waits, Wait) and (waits.why.code, waits.victims) == (Code.PREEMPTING, ())
    assert "jobs 101, 102 were asked to give back" in waits.reason
    (never,) = decide(queues(BORROWS_TWO, {}), [job(1, 11)], nodes=BORROWS_TWO, now=NOW)
    assert isinstance(never, Wait) and "has 10 GPUs in all with what it may borrow" in never.reason


SIBLINGS = [Node("cohort", nominal=3), Node("team a", "cohort"), Node("a0", "team a", 6, 0), Node("a1", "team a", 1)]


def test_what_was_given_back_for_a_job_goes_to_it_and_not_to_others_of_its_team():
    holding = {"a1": [held(103, 3)]}
    waiting = [job(1, 6, "a0"), job(105, 4, "a1"), job(108, 3, "a1")]
    first = decide(queues(SIBLINGS, holding, policy=BACKFILL), waiting, nodes=SIBLINGS, now=NOW)
    (head,) = [one for one in first if isinstance(one, Wait) and one.job == 1]
    assert head.victims == (103,)
    now_held = {"a1": [held(one.job, 4) for one in first if isinstance(one, Admit)]}
    again = [replace(one, is_claiming=one.job == 1) for one in waiting if one.job not in {1, *outcome(first)[0]}]
    again = [replace(waiting[0], is_claiming=True), *again, job(103, 3, "a1")]
    second = outcome(decide(queues(SIBLINGS, now_held, policy=BACKFILL), again, nodes=SIBLINGS, now=NOW))
    assert 1 in second[0] or (second == ([], [105])), "nobody else is admitted before it"


def test_a_job_that_its_own_limit_stops_keeps_nothing_from_others():
    nodes = [
        Node("cohort"), Node("team t", "cohort", 8), Node("a", "team t", 48, 0), Node("b", "team t", 8), *team("c", 16),
    ]  # fmt: skip
    state = queues(nodes, {"a": [held(101, 48)]})
    assert outcome(decide(state, [job(1, 16), job(2, 32, "c")], nodes=nodes, now=NOW))[0] == [2]
    wide = [Node("cohort", nominal=100), *team("a", 4, borrowing_limit=2), *team("c", 0)]
    state = queues(wide, {"a": [held(101, 5)]}, policy=BACKFILL)
    assert outcome(decide(state, [job(1, 5, priority=1), job(2, 10, "c")], nodes=wide, now=NOW))[0] == [2]


def test_best_effort_takes_its_own_back_behind_a_job_that_would_borrow():
    waiting = [job(1, 12), job(2, 4)]
    state = queues(TWO, {"b": [held(101, 12), held(102, 4)]}, policy=BEST_EFFORT)
    assert outcome(decide(state, waiting, nodes=TWO, now=NOW)) == ([], [102])
    state = queues(TWO, {"b": [held(101, 12), held(102, 4)]}, policy=STRICT)
    assert outcome(decide(state, waiting, nodes=TWO, now=NOW)) == ([], []), "nobody passes the first"


def test_each_head_is_told_of_the_jobs_that_make_room_for_it():
    gone = [held(number, 4, is_leaving=True, is_preempted=True) for number in (102, 103)]
    nodes = [*TWO, *team("c", 4)]
    state = queues(nodes, {"b": [held(101, 12), *gone]})
    told = {one.job: one.why.jobs for one in decide(state, [job(1, 4), job(2, 4, "c")], nodes=nodes, now=NOW)}
    assert told == {1: (102,), 2: (103,)}


def test_what_limits_leave_unused_is_not_said_to_be_lent():
    nodes = [Node("cohort"), Node("team t", "cohort", 8), Node("a", "team t", 4, 0)]
    assert Tree(nodes, {"a": 4}).lent("a") == 0
    assert Tree(TWO, {"b": 12}).lent("a") == 4


def test_a_forecast_considers_jobs_in_the_order_of_admission():
    waiting = [job(1, 16, priority=9, expected=Range(100, 100)), job(2, 8, "b", expected=Range(50, 50))]
    assert forecast(queues(TWO, {}), waiting, nodes=TWO, now=NOW) == {1: Range(50, 50), 2: Range(0, 0)}


def test_a_forecast_plays_the_whole_cohort():
    holding = {"b": [held(101, 12, ends_by=None, remaining=Range(10, 20))]}
    waiting = [job(1, 12), job(2, 4, "b", expected=Range(5, 5))]
    found = forecast(queues(TWO, holding), waiting, nodes=TWO, now=NOW)
    assert found[1] == Range(10, 20), "it borrows once the other's job has ended"
    (mine,) = forecast(queues(TWO, holding), [job(1, 8)], nodes=TWO, now=NOW).values()
    assert mine == Range(0, 20), "preempted at once, or ended by itself before it is gone"


# -- for every cohort


@dataclass
class World:
    nodes: list[Node]
    holding: dict[str, list[Holding]]
    pending: list[Pending]
    policy: Policy
    preempts: bool = False

    def decide(self) -> list[Decision]:
        state = queues(self.nodes, self.holding, policy=self.policy, preempts=self.preempts)
        return decide(state, self.pending, nodes=self.nodes, now=NOW)

    def tree(self, nodes: list[Node] | None = None) -> Tree:
        return Tree(nodes or self.nodes, {name: sum(one.amount for one in held) for name, held in self.holding.items()})


@st.composite
def worlds(draw: st.DrawFn, *, within: bool = False, most_held: int = 4) -> World:
    """A root, perhaps a cohort below it, up to four teams, each with a queue or two; `within`: nobody borrows yet."""
    limit = st.one_of(st.none(), st.integers(0, 6))
    nodes, names = [Node("cohort", nominal=draw(st.integers(0, 3)))], "abcd"[: draw(st.integers(2, 4))]
    if draw(st.booleans()):
        nodes.append(Node("cohort x", "cohort", 0, draw(limit), draw(limit)))
    for name in names:
        parent = draw(st.sampled_from([node.name for node in nodes if node.name.startswith("cohort")]))
        weight = draw(st.sampled_from([1.0, 2.0]))
        limits = {"borrowing_limit": draw(limit), "lending_limit": draw(limit), "weight": weight}
        nodes += team(name, draw(st.integers(0, 8)), parent=parent, **limits)
        if draw(st.booleans()):
            nodes.append(Node(f"{name}2", f"team {name}", draw(st.integers(0, 4)), draw(limit)))
    names = [node.name for node in nodes if not node.name.startswith(("team", "cohort"))]
    tree, holding = Tree(nodes, {}), dict[str, list[Holding]]()
    for number in range(101, 101 + draw(st.integers(0, most_held * len(names)))):
        name, slots = draw(st.sampled_from(names)), draw(st.integers(1, 4))
        tree.use(name, slots)
        if tree.available(name) < 0 or (within and tree.is_borrowing(name)):
            tree.use(name, -slots)
            continue
        ends = draw(st.one_of(st.none(), st.integers(1, 50)))
        one = held(
            number, slots, draw(st.integers(0, 2)), float(draw(st.integers(0, 3))),
            ends_by=None if ends is None else NOW + ends, is_spared=draw(st.booleans()) and draw(st.booleans()),
        )  # fmt: skip
        holding.setdefault(name, []).append(one)
    pending = [
        job(
            number, draw(st.integers(1, 9)), draw(st.sampled_from(names)), priority=draw(st.integers(0, 2)),
            longest=draw(st.one_of(st.none(), st.integers(1, 60).map(float))),
        )
        for number in range(1, 1 + draw(st.integers(0, 8)))
    ]  # fmt: skip
    return World(nodes, holding, pending, draw(st.sampled_from(list(Policy))), draw(st.booleans()))


def check_limits(tree: Tree, grown: Iterable[str]) -> None:
    """No node that took more than before is beyond its limits; stated by sums over children, without `available`."""
    for leaf in grown:
        path = tree.path(leaf)
        assert tree.used[path[-1]] <= tree.total[path[-1]], "the root has no more"
        for name in path[:-1]:
            limit = tree.nodes[name].borrowing_limit
            assert limit is None or tree.used[name] <= tree.total[name] + limit, f"{name} borrows beyond its limit"
    for name in {tree.nodes[name].parent for leaf in grown for name in tree.path(leaf)[:-1]}:
        below = [node for node in tree.nodes.values() if node.parent == name]
        borrowed = sum(max(0, tree.used[node.name] - tree.total[node.name]) for node in below)
        lent = sum(
            min(max(0, tree.total[node.name] - tree.used[node.name]), tree.total[node.name] if node.lending_limit is None else node.lending_limit)
            for node in below
        )  # fmt: skip
        assert name is not None
        from_above = max(0, tree.used[name] - tree.total[name])
        assert borrowed <= tree.nodes[name].nominal + lent + from_above, f"below {name} more is borrowed than lent"


@given(worlds())
@schedules(500)
def test_nobody_goes_beyond_quota_borrowing_or_lending_limits(world):
    decisions = world.decide()
    assert sorted(one.job for one in decisions) == [one.job for one in world.pending], "each gets one decision"
    tree, asked = world.tree(), {one.job: one for one in world.pending}
    admitted = [asked[one.job] for one in decisions if isinstance(one, Admit)]
    for one in admitted:
        tree.use(one.queue, one.amount)
    check_limits(tree, {one.queue for one in admitted})


@given(worlds(), st.randoms(use_true_random=False))
@schedules(200)
def test_the_order_in_which_things_are_read_does_not_matter(world, random):
    expected = world.decide()
    for things in (world.pending, world.nodes, *world.holding.values()):
        random.shuffle(things)
    assert world.decide() == expected


@given(worlds())
@schedules(500)
def test_what_fits_starts_but_for_what_is_kept_for_those_with_a_right_to_it(world):
    world.policy = BEST_EFFORT
    decisions, tree, asked = world.decide(), world.tree(), {one.job: one for one in world.pending}
    waits, rightful = list[Pending](), list[Pending]()
    for one in decisions:
        job = asked[one.job]
        if isinstance(one, Admit):
            tree.use(job.queue, job.amount)
            continue
        waits.append(job)
        # When it was considered: a job of its own queue that passes it may take its right away.
        if preempt.is_entitled(job, tree) or asked_for(job, decisions):
            rightful.append(job)
    for one in waits:
        others = [head for head in rightful if head.job != one.job]
        assert one.amount > tree.available(one.queue) or others, "it fits, and nothing is kept for anybody else"


def asked_for(job: Pending, decisions: Iterable[Decision]) -> bool:
    return any(isinstance(one, Wait) and one.job == job.job and one.victims for one in decisions)


@given(worlds(most_held=2))
@schedules(500)
def test_victims_borrow_or_have_a_lower_priority_and_are_the_cheapest_choice(world):
    every = {one.job: replace(one, queue=name) for name, held in world.holding.items() for one in held}
    asked, tree = {one.job: one for one in world.pending}, world.tree()
    for one in world.decide():  # the first of them that preempts: later ones see what it leaves
        if isinstance(one, Admit):
            tree.use(asked[one.job].queue, asked[one.job].amount)
            new = held(one.job, asked[one.job].amount, asked[one.job].priority, is_spared=True)  # in this round
            every[one.job] = replace(new, queue=asked[one.job].queue)
        elif one.victims:
            head = asked[one.job]
            chosen = [every[number] for number in one.victims]
            assert all(
                victim.queue != head.queue or (victim.priority < head.priority and world.preempts) for victim in chosen
            )
            assert all(tree.is_borrowing(victim.queue) for victim in chosen if victim.queue != head.queue)
            assert not any(victim.is_spared for victim in chosen)
            if len(every) <= preempt.EXACT:
                assert sorted(one.victims) == best(head, tree, every, world.preempts)
            return
        elif preempt.is_entitled(asked[one.job], tree):
            return  # something is kept for it


def best(head: Pending, tree: Tree, every: Mapping[int, Holding], by_priority: bool) -> list[int]:
    """The cheapest of all choices after which the head fits, by trying each in every order that might matter."""
    own = tree.path(head.queue)
    tree.use(head.queue, head.amount)
    rightful = {name for name in own[:-1] if not tree.is_borrowing(name)}
    tree.use(head.queue, -head.amount)

    def may(one: Holding) -> bool:
        if one.is_spared:
            return False
        if one.queue == head.queue:
            return by_priority and one.priority < head.priority
        path = tree.path(one.queue)
        meeting = next(name for name in path if name in own)
        borrows = all(tree.is_borrowing(name) for name in path[: path.index(meeting)])
        return borrows and own[own.index(meeting) - 1] in rightful

    found = []
    for count in range(1, len(every) + 1):
        for chosen in combinations(sorted(every.values(), key=lambda one: one.job), count):
            done: list[Holding] = []
            for one in sorted(chosen, key=lambda one: (one.amount, one.job)):
                if not may(one):
                    break
                tree.use(one.queue, -one.amount)
                done.append(one)
            fits = len(done) == count and head.amount <= tree.available(head.queue)
            for one in done:
                tree.use(one.queue, one.amount)
            if fits:
                lost = sum(one.lost for one in chosen)
                amount = sum(one.amount for one in chosen)
                found.append(
                    (max(one.priority for one in chosen), lost, count, amount, sorted(one.job for one in chosen))
                )
    return min(found)[-1]


@given(worlds(within=True), st.integers(1, 4))
@schedules(300)
def test_more_quota_for_a_team_takes_none_of_its_rightful_admissions_away(world, more):
    world.policy = STRICT
    tree = world.tree()
    before = {one.job for one in world.decide() if isinstance(one, Admit)}
    rightful = set()
    for one in sorted(world.pending, key=lambda one: one.order):
        if one.queue == "a":
            tree.use("a", one.amount)
            if one.job in before and not tree.is_borrowing("a"):
                rightful.add(one.job)
    world.nodes = [replace(node, nominal=node.nominal + more) if node.name == "a" else node for node in world.nodes]
    assert rightful <= {one.job for one in world.decide() if isinstance(one, Admit)}


def play(world: World, random: Random) -> int:
    """Play a cohort until every job has ended, with preempted ones queued again; return how many were preempted.

    A preempted job keeps its place, leaves a moment later and goes on from where it was.
    """
    asked = {one.job: one for one in world.pending}
    left_of = {number: random.uniform(1, 50) for number in asked}
    for name, holders in world.holding.items():
        for one in holders:
            asked[one.job] = job(one.job, one.amount, name, priority=one.priority)
            left_of[one.job] = random.uniform(1, 50)
    world.holding = {name: [replace(one, is_spared=False) for one in held] for name, held in world.holding.items()}
    began = {one.job: 0.0 for held in world.holding.values() for one in held}
    ends = [(left_of[number], number) for number in began]
    heapq.heapify(ends)
    now, preempted = 0.0, 0
    for _ in range(2000):
        decisions = world.decide()
        starts = {one.job for one in decisions if isinstance(one, Admit)}
        for number in starts:
            one = asked[number]
            world.holding.setdefault(one.queue, []).append(held(number, one.amount, one.priority))
            began[number] = now
            heapq.heappush(ends, (now + left_of[number], number))
        claims = {one.job for one in decisions if isinstance(one, Wait) and one.why.code is Code.PREEMPTING}
        world.pending = [replace(one, is_claiming=one.job in claims) for one in world.pending if one.job not in starts]
        victims = {victim for one in decisions if isinstance(one, Wait) for victim in one.victims}
        assert not victims & starts, "nobody starts to be preempted at once"
        preempted += len(victims)
        for name, holders in world.holding.items():
            world.holding[name] = [
                replace(one, is_leaving=True, is_preempted=True) if one.job in victims else one for one in holders
            ]
        for victim in victims:
            heapq.heappush(ends, (now + 0.01, victim))
        while ends and not any(one.job == ends[0][1] for held in world.holding.values() for one in held):
            heapq.heappop(ends)
        if not ends:
            never = {
                one.job for one in world.decide() if isinstance(one, Wait) and one.why.code is Code.EXCEEDS_MAXIMUM
            }
            assert {one.job for one in world.pending} <= never, "who could start has started"
            return preempted
        now, gone = heapq.heappop(ends)
        (leaves,) = [one for held in world.holding.values() for one in held if one.job == gone]
        for name, holders in world.holding.items():
            world.holding[name] = [one for one in holders if one.job != gone]
        if leaves.is_preempted and now < began[gone] + left_of[gone]:
            left_of[gone] -= now - began[gone]
            world.pending = [*world.pending, asked[gone]]
            ends = [(at, number) for at, number in ends if number != gone]
            heapq.heapify(ends)
    raise AssertionError("jobs are preempted without end")


@given(worlds(), st.randoms(use_true_random=False))
@schedules(300)
def test_everybody_starts_in_the_end_and_no_two_preempt_each_other_without_end(world, random):
    jobs = len(world.pending) + sum(map(len, world.holding.values()))
    assert play(world, random) <= jobs * jobs
