"""Let threads take turns at CPU-heavy work, rotating over groups and over the people of each, with bounded queues."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from ..errors import Busy
from .fair_queue import FairQueue

RETRY_AFTER_SECONDS = 2


class _Wait:
    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.is_sent_away = False


class ThreadTurns:
    """Allow `at_once` turns at a time, at most `each` of them for one group (a team, or an address).

    Beyond `most_waiting` waits of one person: raises Busy. Beyond `most_in_all` waits in total, the newest wait of the
    longest queue is sent away with Busy. A waiting thread holds one of the slots for requests (room.py), so it is
    better asked to retry.
    """

    def __init__(self, at_once: int, *, each: int, most_waiting: int, words: str, most_in_all: int = 64):
        """Create the queue; `words` name what is waited for and go into the Busy errors."""
        self.each, self.most_waiting, self.most_in_all, self.words = each, most_waiting, most_in_all, words
        self._free = at_once
        self._lock = threading.Lock()
        self._running: Counter[Hashable] = Counter()
        self._queue = FairQueue[Hashable, _Wait]()

    @contextmanager
    def turn(self, group: Hashable, person: Hashable = None) -> Iterator[None]:
        if mine := self._take_or_wait(group, person):
            mine.is_over.wait()
            if mine.is_sent_away:
                raise self._busy()
        try:
            yield
        finally:
            self._pass_on(group)

    def waiting(self) -> int:
        return len(self._queue)

    def _busy(self) -> Busy:
        return Busy(self.words, seconds=RETRY_AFTER_SECONDS)

    def _take_or_wait(self, group: Hashable, person: Hashable) -> _Wait | None:
        """Return None if the turn is ours at once, else the wait. Raises Busy."""
        with self._lock:
            if self._free and self._has_share(group):  # so none of those waiting could have gone before us
                self._start(group)
                return None
            if self._queue.length_of_person(group, person) >= self.most_waiting:
                raise self._busy()
            if len(self._queue) >= self.most_in_all:
                self._make_room(self._queue.length(group))
            mine = _Wait()
            self._queue.push(mine, group=group, person=person)
            return mine

    def _make_room(self, ours: int) -> None:
        """Send the newest wait of the longest group away. Raises Busy if no group is longer than ours would be."""
        if self._queue.longest() <= ours + 1:
            raise self._busy()
        newest = self._queue.pop_newest_of_longest()
        newest.is_sent_away = True
        newest.is_over.set()

    def _has_share(self, group: Hashable) -> bool:
        return self._running[group] < self.each

    def _start(self, group: Hashable) -> None:
        self._free -= 1
        self._running[group] += 1

    def _pass_on(self, group: Hashable) -> None:
        with self._lock:
            self._free += 1
            self._running[group] -= 1
            if not self._running[group]:
                del self._running[group]
            if following := self._queue.pop(may=self._has_share):
                self._start(following[0])
                following[1].is_over.set()
