"""Threads take turns: in rotation, never more than a payer's share, and refused if the line is too long."""

import threading
import time
from contextlib import ExitStack

import pytest

from common.errors import Busy
from common.limits.turns import ThreadTurns

PATIENCE_SECONDS = 60


class Line:
    """Threads that each take a turn and keep it until released; `order` lists the payers in the order served."""

    def __init__(self, turns: ThreadTurns):
        self.turns = turns
        self.order: list[str] = []
        self.running: list[tuple[str, threading.Event]] = []
        self.threads: list[threading.Thread] = []
        self.sent_away: list[str] = []

    def come(self, payer: str) -> None:
        """Start a thread, and wait until it has its turn or is in line."""
        before = self.known()
        one = threading.Thread(target=self.take, args=[payer])
        self.threads.append(one)
        one.start()
        self.until(lambda: self.known() > before)

    def take(self, payer: str) -> None:
        """`payer` is one letter for the group, optionally followed by one for a person in it."""
        try:
            with self.turns.turn(*payer):
                leave = threading.Event()
                self.order.append(payer)
                self.running.append((payer, leave))
                assert leave.wait(PATIENCE_SECONDS)
        except Busy:
            self.sent_away.append(payer)

    def known(self) -> int:
        return len(self.order) + self.turns.waiting()

    def leave(self, payer: str) -> None:
        known, is_followed = len(self.order), self.turns.waiting() > 0
        one = next(one for one in self.running if one[0] == payer)
        self.running.remove(one)
        one[1].set()
        if is_followed:
            self.until(lambda: len(self.order) > known)

    def until(self, what) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not what():
            assert time.monotonic() < end, "it did not come to that"
            time.sleep(0.002)

    def empty(self) -> None:
        while any(one.is_alive() for one in self.threads):
            for _, leave in self.running:
                leave.set()
            time.sleep(0.002)


@pytest.fixture
def line():
    made: list[tuple[Line, int]] = []

    def make(at_once: int, **how) -> Line:
        turns = ThreadTurns(at_once, words="all turns are taken", **{"each": at_once, "most_waiting": 9, **how})
        made.append((Line(turns), at_once))
        return made[-1][0]

    yield make
    for one, at_once in made:
        one.empty()
        assert not one.turns.waiting()
        one.turns.most_waiting = 0  # so that a turn that is still taken is refused
        take_together(one.turns, [f"new {number}" for number in range(at_once)])
        for group in {payer[0] for payer in one.order}:
            take_together(one.turns, [group] * one.turns.each)


def take_together(turns: ThreadTurns, groups: list[str]) -> None:
    with ExitStack() as taken:
        for group in groups:
            taken.enter_context(turns.turn(group))


def test_payers_are_served_in_rotation(line):
    one = line(1)
    for payer in "aaaab":
        one.come(payer)
    assert one.order == ["a"]
    one.leave("a")
    one.leave("a")
    assert one.order == ["a", "a", "b"]
    one.leave("b")
    one.leave("a")
    assert one.order == ["a", "a", "b", "a", "a"]


def test_a_caller_beyond_the_total_limit_is_refused(line):
    one = line(1, most_in_all=3)
    for payer in "abcd":
        one.come(payer)
    with pytest.raises(Busy), one.turns.turn("e"):
        pass


def test_the_longest_line_loses_its_last_to_a_payer_with_none_waiting(line):
    one = line(1, most_in_all=3)
    for payer in "aaaa":
        one.come(payer)
    other = threading.Thread(target=one.take, args=["b"])
    one.threads.append(other)
    other.start()
    one.until(lambda: one.sent_away == ["a"])
    one.leave("a")
    one.leave("a")
    assert one.order == ["a", "a", "b"]


def test_one_payer_gets_no_more_than_its_share_and_others_overtake_it(line):
    one = line(2, each=1)
    for payer in "aab":
        one.come(payer)
    assert one.order == ["a", "b"]
    one.leave("a")
    assert one.order == ["a", "b", "a"]


def test_a_payer_with_too_many_waiting_is_refused_and_others_are_not(line):
    one = line(1, most_waiting=2)
    for payer in "aaa":
        one.come(payer)
    with pytest.raises(Busy, match="all turns are taken; try again in 2 s"), one.turns.turn("a"):
        pass
    one.come("b")


def test_a_turn_that_ends_with_an_error_is_passed_on(line):
    one = line(1)
    with pytest.raises(ZeroDivisionError), one.turns.turn("a"):
        raise ZeroDivisionError
    one.come("a")
    assert one.order == ["a"]
