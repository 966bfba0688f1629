"""When waiting jobs may start: from what is known of the jobs before them, and not at all where nothing is."""

import pytest

from queues.admission import Holding, Pending, Policy, QueueState, Range, Unknown, forecast
from queues.admission.durations import FEWEST, expected

NOW = 1000.0


def job(number: int, slots: int, least: float | None = None, most: float | None = None) -> Pending:
    known = None if least is None or most is None else Range(least, most)
    return Pending(number, "q", {"gpu": slots}, submitted=float(number), expected=known)


def queue(*holding: Holding, quota: int = 8, **values) -> QueueState:
    used = {"gpu": sum(one.takes["gpu"] for one in holding)}
    return QueueState("q", {"gpu": quota}, used, holding=holding, **values)


def held(number: int, slots: int, least: float, most: float) -> Holding:
    return Holding(number, {"gpu": slots}, remaining=Range(least, most))


def test_a_job_that_fits_starts_now():
    assert forecast([queue()], [job(1, 8)], now=NOW) == {1: Range(0, 0)}


def test_the_first_one_starts_when_enough_of_those_before_it_have_ended():
    state = queue(held(101, 4, 10, 20), held(102, 4, 30, 60))
    assert forecast([state], [job(1, 4), job(2, 8)], now=NOW)[1] == Range(10, 20)
    assert forecast([state], [job(1, 8)], now=NOW) == {1: Range(30, 60)}


def test_later_ones_wait_for_the_jobs_before_them_too():
    state = queue(held(101, 8, 10, 20))
    found = forecast([state], [job(1, 8, 100, 200), job(2, 8, 5, 5), job(3, 8)], now=NOW)
    assert found == {1: Range(10, 20), 2: Range(110, 220), 3: Range(115, 225)}


def test_where_nothing_is_known_of_a_job_before_it_that_one_is_named():
    state = queue(Holding(101, {"gpu": 8}))
    assert forecast([state], [job(1, 8)], now=NOW) == {1: Unknown((101,))}
    known = queue(held(101, 8, 10, 20))
    assert forecast([known], [job(1, 8), job(2, 8)], now=NOW) == {1: Range(10, 20), 2: Unknown((1,))}


def test_a_deadline_alone_bounds_the_start_from_above():
    state = queue(Holding(101, {"gpu": 8}, ends_by=NOW + 60, remaining=Range(0, 60)))
    assert forecast([state], [job(1, 8)], now=NOW) == {1: Range(0, 60)}


def test_what_never_starts_has_no_forecast_and_a_closed_queue_depends_on_somebody():
    assert forecast([queue()], [job(1, 9), job(2, 8)], now=NOW) == {2: Range(0, 0)}
    assert forecast([queue(is_open=False)], [job(1, 1)], now=NOW) == {1: Unknown()}


def test_a_policy_is_played_too():
    state = queue(held(101, 6, 50, 60), policy=Policy.BEST_EFFORT)
    assert forecast([state], [job(1, 8), job(2, 2, 5, 5)], now=NOW)[2] == Range(0, 0)


@pytest.mark.parametrize("count", [0, FEWEST - 1])
def test_few_jobs_say_nothing(count):
    assert expected([60.0] * count) is None


def test_four_in_five_lie_between():
    found = expected([float(one) for one in range(100, 1101, 10)])
    assert found is not None and (found.least, found.most) == (pytest.approx(200), pytest.approx(1000))


def test_jobs_that_ended_earlier_say_nothing_about_one_that_did_not():
    held_for = [10.0] * 50 + [100.0] * FEWEST
    assert expected(held_for, elapsed=50.0) == Range(50, 50)
    assert expected(held_for, elapsed=100.0) is None
