"""Let threads take turns at CPU-heavy work, rotating over groups and over the people of each, with bounded queues."""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Busy

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
        """Create the queues; `words` name what is waited for and go into the Busy errors."""
        self.each, self.most_waiting, self.most_in_all, self.words = each, most_waiting, most_in_all, words
        self._free = at_once
        self._lock = threading.Lock()
        self._running: Counter[object] = Counter()
        # Both in the order in which they are served.
        self._waiting: dict[object, dict[object, deque[_Wait]]] = {}

    @contextmanager
    def turn(self, group: object, person: object = None) -> Iterator[None]:
        if mine := self._take_or_wait(group, person):
            mine.is_over.wait()
            if mine.is_sent_away:
                raise self._busy()
        try:
            yield
        finally:
            self._pass_on(group)

    def waiting(self) -> int:
        return sum(map(_length, self._waiting.values()))

    def _busy(self) -> Busy:
        return Busy(self.words, seconds=RETRY_AFTER_SECONDS)

    def _take_or_wait(self, group: object, person: object) -> _Wait | None:
        """Return None if the turn is ours at once, else the wait. Raises Busy."""
        with self._lock:
            if self._free and self._running[group] < self.each:  # so none of those waiting could have gone before us
                self._start(group)
                return None
            people = self._waiting.get(group, {})
            if len(people.get(person, ())) >= self.most_waiting:
                raise self._busy()
            if self.waiting() >= self.most_in_all:
                self._make_room(_length(people))
            mine = _Wait()
            self._waiting.setdefault(group, {}).setdefault(person, deque()).append(mine)
            return mine

    def _make_room(self, ours: int) -> None:
        """Send the newest wait of the longest queue away.

        Raises Busy where no group has more waiting than ours would have.
        """
        longest = max(self._waiting.values(), key=_length)
        if _length(longest) <= ours + 1:
            raise self._busy()
        newest = max(longest.values(), key=len).pop()
        newest.is_sent_away = True
        newest.is_over.set()
        for person in [one for one, line in longest.items() if not line]:
            del longest[person]

    def _start(self, group: object) -> None:
        self._free -= 1
        self._running[group] += 1

    def _pass_on(self, group: object) -> None:
        with self._lock:
            self._free += 1
            self._running[group] -= 1
            if not self._running[group]:
                del self._running[group]
            following = next((one for one in self._waiting if self._running[one] < self.each), None)
            if following is not None:
                self._start(following)
                self._next_of(following).is_over.set()

    def _next_of(self, group: object) -> _Wait:
        """Return the longest wait of the first person; that person and the group move behind the others."""
        people = self._waiting.pop(group)
        person = next(iter(people))
        line = people.pop(person)
        one = line.popleft()
        if line:
            people[person] = line
        if people:
            self._waiting[group] = people
        return one


def _length(people: dict[object, deque[_Wait]]) -> int:
    return sum(map(len, people.values()))
