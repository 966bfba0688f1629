"""How long watches last, so that few of them are opened at a time."""

import heapq

import pytest

from jobs.clusters.kubernetes.watch.watch_ends import SPACING_SECONDS, WatchEnds

LEAST = 10.0


def test_one_namespace_is_confirmed_as_often_as_a_quiet_cache_needs():
    ends = WatchEnds()
    assert [ends.seconds("a", LEAST, now=at) for at in (0.0, 10.0, 13.0, 23.0)] == [10, 10, 10, 10]


def opened(count: int, *, seconds: float) -> list[float]:
    """When watches of so many namespaces are opened, the first ones of all at the same moment, each again at its end."""
    ends, times = WatchEnds(), list[float]()
    due = [(0.0, f"team-{number}") for number in range(count)]
    while due[0][0] < seconds:
        now, namespace = heapq.heappop(due)
        times.append(now)
        heapq.heappush(due, (now + ends.seconds(namespace, LEAST, now=now), namespace))
    return times


@pytest.mark.parametrize("count", [2, 7, 50, 200])
def test_of_many_namespaces_two_watches_are_opened_in_ten_seconds(count):
    times = [at for at in opened(count, seconds=3600) if at > 0]
    for first in range(0, 3590, 5):
        assert sum(first <= at < first + 10 for at in times) <= 10 / SPACING_SECONDS, first
    assert len(times) >= 3600 / max(LEAST, count * SPACING_SECONDS + LEAST), "and none is left out"


def test_a_namespace_that_is_not_watched_any_more_takes_no_turn():
    ends = WatchEnds()
    for number in range(50):
        ends.seconds(f"team-{number}", LEAST, now=0.0)
    for number in range(50):
        ends.forget(f"team-{number}")
    assert ends.seconds("left", LEAST, now=0.0) == 10
