import pytest

from queues.admission import Admit, Code, Machine, Pending, QueueState, Wait, decide, words
from queues.resources import add, describe, fits, subtract


def job(number: int, slots: int, **values) -> Pending:
    return Pending(number, values.pop("queue", "q"), {"cpu": slots}, submitted=float(number), **values)


def admitted(queues, pending) -> list[int]:
    return [one.job for one in decide(queues, pending) if isinstance(one, Admit)]


Q = QueueState("q", {"cpu": 4})


@pytest.mark.parametrize(
    ("case", "queue", "pending", "expected"),
    [
        ("what fits starts", Q, [job(1, 2), job(2, 2)], [1, 2]),
        ("first come, first served", Q, [job(2, 4), job(1, 2)], [1]),
        (
            "a large job is not starved by a small one behind it",
            QueueState("q", {"cpu": 4}, {"cpu": 2}),
            [job(1, 4), job(2, 1)],
            [],
        ),
        ("higher priority goes first", Q, [job(1, 4), job(2, 4, priority=5)], [2]),
        ("a job larger than the whole quota holds up nobody", Q, [job(1, 5), job(2, 3), job(3, 1)], [2, 3]),
        ("a closed queue admits nothing", QueueState("q", {"cpu": 4}, is_open=False), [job(1, 1)], []),
        ("a queue whose hours are spent admits nothing", QueueState("q", {"cpu": 4}, spent_until=9.0), [job(1, 1)], []),
        (
            "of one user no more than the limit, and that holds up nobody else",
            QueueState("q", {"cpu": 4}, user_limit=2),
            [job(1, 1, user=7), job(2, 2, user=7), job(3, 1, user=7), job(4, 2, user=8), job(5, 1)],
            [1, 3, 4],
        ),
        (
            "what a user holds counts",
            QueueState("q", {"cpu": 4}, {"cpu": 2}, user_limit=2, user_used={7: 2}),
            [job(1, 1, user=7), job(2, 2, user=8)],
            [2],
        ),
        ("a full queue admits nothing", QueueState("q", {"cpu": 4}, {"cpu": 4}), [job(1, 1)], []),
    ],
)
def test_admission(case, queue, pending, expected):
    assert admitted([queue], pending) == expected, case


def test_queues_do_not_block_each_other():
    assert admitted([Q, QueueState("r", {"cpu": 1})], [job(1, 9), job(2, 1, queue="r")]) == [2]


def test_every_waiting_job_gets_a_reason():
    decisions = decide([Q], [job(1, 3), job(2, 3), job(3, 1)])
    second, third = decisions[1:]
    assert isinstance(second, Wait) and isinstance(third, Wait)
    assert (second.why.code, second.is_head) == (Code.WAITING_FOR_QUOTA, True)
    assert second.reason == "needs 3 CPU slots; queue q has 1 CPU slot free of 4 CPU slots"
    assert second.why.numbers == {"needs": {"cpu": 3}, "free": {"cpu": 1}, "quota": {"cpu": 4}}
    assert (third.why.code, third.is_head) == (Code.BEHIND, False)
    assert third.reason == "1 ahead in queue q; job 2 is first"
    assert words(third.why, is_lasting=True) == "behind other jobs in queue q", "does not change while it moves up"


def test_limits_of_users_and_budgets_say_what_helps():
    limited = QueueState("q", {"cpu": 4}, {"cpu": 1}, user_limit=2, user_used={7: 1})
    one, never = decide([limited], [job(1, 2, user=7), job(2, 3, user=8)])
    assert (one.why.code, never.why.code) == (Code.USER_LIMIT, Code.EXCEEDS_USER_LIMIT)
    assert one.reason == (
        "needs 2 CPU slots; one user may hold 2 CPU slots in queue q, of which 1 CPU slot is left; "
        "starts when own jobs have ended"
    )
    assert "submit a smaller job, or ask an administrator" in never.reason
    assert (
        words(one.why, is_lasting=True)
        == "needs 2 CPU slots; its user holds too much of the 2 CPU slots that one user may in queue q"
    )
    (spent,) = decide([QueueState("q", {"cpu": 4}, spent_until=1_798_761_600.0)], [job(1, 1)])
    assert spent.reason.startswith(
        "queue q has used its hours of this month; starts when the next month begins on 1 January"
    )
    assert decide([QueueState("q", {"cpu": 4}, spent_until=5.0)], [job(1, 1)], now=5.0) == [Admit(1)]


def test_a_job_that_can_never_fit_gets_the_total_quota_as_its_reason():
    (decision,) = decide([Q], [job(1, 5)])
    assert isinstance(decision, Wait)
    assert "has 4 CPU slots in all" in decision.reason


def test_a_job_that_waits_for_a_name_holds_up_nobody_and_a_given_name_is_taken():
    queue = QueueState("q", {"cpu": 4}, taken={"mesh a": 7})
    first, second, third = decide(
        [queue], [job(number, 1, names=frozenset({name})) for number, name in enumerate(["mesh a", "mesh b", "mesh b"])]
    )
    assert isinstance(first, Wait) and first.reason.startswith("mesh a is in use by job 7")
    assert isinstance(second, Admit)
    assert isinstance(third, Wait) and third.reason.startswith("mesh b is in use by job 1")


def test_resource_vectors():
    assert add({"cpu": 1}, {"gpu": 2}) == {"cpu": 1, "gpu": 2}
    assert subtract({"cpu": 1}, {"cpu": 3}) == {"cpu": -2}
    assert fits({"cpu": 1}, {"cpu": 1})
    assert not fits({"gpu": 1}, {"cpu": 1})
    assert describe({"gpu": 1, "cpu": 2}) == "2 CPU slots and 1 GPU"


# -- the machine of a local cluster


def on(slots: int, *, used: int = 0, free: int = 100, nominal: int = 50) -> QueueState:
    return QueueState("q", {"cpu": nominal}, machine=Machine(slots, used, free))


@pytest.mark.parametrize(
    ("case", "queue", "pending", "expected"),
    [
        ("as many as there is memory for", on(24), [job(number, 10) for number in (1, 2, 3)], [1, 2]),
        ("jobs of other queues count", on(24, used=20), [job(1, 5), job(2, 4)], []),
        ("one larger than the machine holds up nobody", on(24), [job(1, 25), job(2, 4)], [2]),
        ("while other programs have the memory, one starts all the same", on(24, free=0), [job(1, 4), job(2, 4)], [1]),
        ("beside a running one only what is free", on(24, used=4, free=5), [job(1, 3), job(2, 3)], [1]),
    ],
)
def test_a_machine_bounds_all_its_queues(case, queue, pending, expected):
    assert admitted([queue], pending) == expected, case


@pytest.mark.parametrize(
    ("queue", "slots", "reason"),
    [
        (
            on(24),
            25,
            "needs 25 CPU slots, but this machine has memory for 24 in all; submit a smaller job, or ask for a larger machine",
        ),
        (on(24, used=20), 5, "needs 5 CPU slots; 4 of the 24 that this machine has memory for are free"),
        (on(24, used=4, free=2), 5, "needs 5 CPU slots; this machine has free memory for 2 more now"),
    ],
)
def test_a_job_that_waits_for_the_machine_says_so(queue, slots, reason):
    (decision,) = decide([queue], [job(1, slots)])
    assert isinstance(decision, Wait) and decision.reason == reason
