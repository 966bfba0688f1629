"""Who may pass whom in a queue, case by case, and what holds for every queue."""

import heapq
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.admission import Admit, Code, Holding, Node, Pending, Policy, QueueState, Wait, decide
from queues.admission.cohort import Tree
from queues.admission.reservation import Reservation, reserve
from tests.support.schedules import schedules

NOW = 1000.0


def job(number: int, slots: int, longest: float | None = None, **values) -> Pending:
    return Pending(number, "q", {"gpu": slots}, submitted=float(number), longest=longest, **values)


def queue(policy: Policy, *holding: tuple[int, float | None], quota: int = 8) -> QueueState:
    """A queue whose jobs hold so many GPUs, until so many seconds from now at the latest."""
    held = tuple(
        Holding(100 + number, {"gpu": slots}, None if left is None else NOW + left)
        for number, (slots, left) in enumerate(holding)
    )
    return QueueState("q", {"gpu": quota}, {"gpu": sum(slots for slots, _ in holding)}, policy=policy, holding=held)


def admitted(state: QueueState, *pending: Pending) -> list[int]:
    return [one.job for one in decide([state], pending, now=NOW) if isinstance(one, Admit)]


def free(state: QueueState) -> int:
    return state.nominal["gpu"] - state.used["gpu"]


def reserved(head: Pending, state: QueueState, now: float) -> Reservation | None:
    tree = Tree([Node("q", nominal=state.nominal["gpu"])], {"q": state.used["gpu"]})
    return reserve(head, tree, [replace(one, queue="q") for one in state.holding], now=now)


STRICT, BACKFILL, BEST_EFFORT = Policy
HEAD = job(1, 8)


@pytest.mark.parametrize(
    ("case", "state", "pending", "expected"),
    [
        ("strict: nobody passes the first one", queue(STRICT, (6, 60)), [HEAD, job(2, 2, 10)], []),
        ("best effort: whoever fits passes", queue(BEST_EFFORT, (6, None)), [HEAD, job(2, 2)], [2]),
        ("backfill: who ends before the first one can start passes", queue(BACKFILL, (6, 60)), [HEAD, job(2, 2, 60)], [2]),
        ("backfill: who may end later does not", queue(BACKFILL, (6, 60)), [HEAD, job(2, 2, 61)], []),
        ("backfill: who has no deadline does not", queue(BACKFILL, (6, 60)), [HEAD, job(2, 2)], []),
        ("backfill: nobody knows when a job without a deadline ends", queue(BACKFILL, (6, None)), [HEAD, job(2, 2, 1)], []),
        (
            "backfill: who needs what is left beside the first one may stay as long as it likes",
            queue(BACKFILL, (6, 60)), [job(1, 6), job(2, 2)], [2],
        ),
        (
            "backfill: what is left beside it is given away once",
            queue(BACKFILL, (6, 60)), [job(1, 6), job(2, 1), job(3, 1), job(4, 1)], [2, 3],
        ),
        (
            "backfill: the first one waits for those that end first, as many as it needs",
            queue(BACKFILL, (3, 30), (3, 90)), [job(1, 5), job(2, 2, 31)], [],
        ),
        ("backfill: a job that is late by its deadline ends now", queue(BACKFILL, (6, -5)), [HEAD, job(2, 2, 1)], []),
        ("backfill: an earlier one that can never start holds up nobody", queue(BACKFILL), [job(1, 9), job(2, 8)], [2]),
        ("a higher priority is first whatever the policy", queue(BEST_EFFORT), [job(1, 8), job(2, 8, priority=1)], [2]),
    ],
)  # fmt: skip
def test_who_passes_whom(case, state, pending, expected):
    assert admitted(state, *pending) == expected, case


def test_a_job_that_would_delay_the_first_one_is_told_for_whom_and_until_when_its_quota_is_kept():
    (_, second) = decide([queue(BACKFILL, (6, 60))], [HEAD, job(2, 2, 61)], now=NOW)
    assert isinstance(second, Wait) and second.why.code is Code.RESERVED_FOR
    assert (second.why.job, second.why.at) == (1, NOW + 60)
    assert "kept for job 1" in second.reason and "with a deadline" in second.reason
    (_, third) = decide([queue(BACKFILL, (6, None))], [HEAD, job(2, 2, 61)], now=NOW)
    assert isinstance(third, Wait) and third.why.code is Code.BEHIND, "no deadline would help it"


# -- for every queue

seconds = st.one_of(st.none(), st.integers(1, 50).map(float))
waiting = st.lists(st.tuples(st.integers(1, 10), seconds, st.integers(0, 2)), max_size=12)
held = st.lists(st.tuples(st.integers(1, 4), seconds), max_size=4)
policies = st.sampled_from(list(Policy))


def pending_of(asked: list[tuple[int, float | None, int]]) -> list[Pending]:
    return [
        job(number, slots, longest, priority=priority) for number, (slots, longest, priority) in enumerate(asked, 1)
    ]


@given(policies, held, waiting)
@schedules(300)
def test_no_policy_goes_beyond_the_quota_and_each_job_gets_one_decision(policy, holding, asked):
    state, pending = queue(policy, *holding), pending_of(asked)
    decisions = decide([state], pending, now=NOW)
    assert sorted(one.job for one in decisions) == sorted(one.job for one in pending)
    taken = sum(
        one.asked["gpu"] for one in pending if one.job in {made.job for made in decisions if isinstance(made, Admit)}
    )
    assert taken <= max(0, free(state))
    assert decide([state], reversed(pending), now=NOW) == decisions, "the order in which jobs are read does not matter"


@given(held, waiting)
@schedules(300)
def test_each_policy_admits_what_the_stricter_one_admits_first(holding, asked):
    """Strict admits a prefix of the order; best effort leaves no job waiting that fits into what is left."""
    pending = pending_of(asked)
    for policy in Policy:
        state = queue(policy, *holding)
        decisions = decide([state], pending, now=NOW)
        waits = [one for one in decisions if isinstance(one, Wait) and one.why.code is not Code.EXCEEDS_MAXIMUM]
        starts = [one.job for one in decisions if isinstance(one, Admit)]
        if policy is STRICT and waits:
            order = [one.job for one in decisions]
            assert all(order.index(start) < order.index(waits[0].job) for start in starts)
        if policy is BEST_EFFORT:
            left = free(state) - sum(one.asked["gpu"] for one in pending if one.job in starts)
            asked_by = {one.job: one.asked["gpu"] for one in pending}
            assert all(asked_by[one.job] > left for one in waits)


@given(held, waiting, st.randoms(use_true_random=False))
@schedules(300)
def test_backfill_never_starts_the_first_one_later_than_it_was_promised(holding, asked, random):
    """Played forward: every job ends at a random moment up to its deadline, and each end is followed by a decision."""
    state, left, now = queue(BACKFILL, *holding), pending_of(asked), NOW
    ends = [(NOW + random.uniform(0, one.ends_by - NOW), one.job) for one in state.holding if one.ends_by is not None]
    heapq.heapify(ends)
    promised: dict[int, float] = {}
    while True:
        decisions = decide([state], left, now=now)
        starts = {one.job for one in decisions if isinstance(one, Admit)}
        for one in [one for one in left if one.job in starts]:
            assert now <= promised.get(one.job, now), "it was promised an earlier start"
            ends_by = None if one.longest is None else now + one.longest
            state = replace(
                state, used={"gpu": state.used["gpu"] + one.asked["gpu"]},
                holding=(*state.holding, Holding(one.job, one.asked, ends_by)),
            )  # fmt: skip
            if one.longest is not None:
                heapq.heappush(ends, (now + random.uniform(0, one.longest), one.job))
        left = [one for one in left if one.job not in starts]
        head = next((one for one in decisions if isinstance(one, Wait) and one.is_head), None)
        if head is not None and (found := reserved(next(one for one in left if one.job == head.job), state, now)):
            promised[head.job] = min(promised.get(head.job, found.at), found.at)
        if not ends:
            return
        now, gone = heapq.heappop(ends)
        (over,) = [one for one in state.holding if one.job == gone]
        state = replace(
            state, used={"gpu": state.used["gpu"] - over.takes["gpu"]},
            holding=tuple(one for one in state.holding if one.job != gone),
        )  # fmt: skip
