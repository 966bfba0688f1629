"""A queue whose groups take turns, and within each group its people. Pure: its users add locks, waiting and limits."""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

G = TypeVar("G", bound=Hashable)
T = TypeVar("T")


class FairQueue(Generic[G, T]):
    """Items of the people of groups: teams and their users, for example. Not safe for threads by itself."""

    def __init__(self) -> None:
        # Groups, and the people of each, in the order in which they are served.
        self._groups: dict[G, dict[Hashable, deque[T]]] = {}

    def __len__(self) -> int:
        return sum(map(_length, self._groups.values()))

    def push(self, item: T, *, group: G, person: Hashable = None) -> None:
        self._groups.setdefault(group, {}).setdefault(person, deque()).append(item)

    def length(self, group: G) -> int:
        """Return how many items of a group wait."""
        return _length(self._groups.get(group, {}))

    def length_of_person(self, group: G, person: Hashable) -> int:
        return len(self._groups.get(group, {}).get(person, ()))

    def pop(
        self, *, may: Callable[[G], bool] = lambda group: True, load: Callable[[G], int] = lambda group: 0
    ) -> tuple[G, T] | None:
        """Remove the oldest item of the next person of the next group, which both move behind the others.

        Next is the group of the smallest `load` that `may` be served, of equals the one that waited longest since its
        last turn. Returns the group and the item, None if no group may be served.
        """
        group = min(filter(may, self._groups), key=load, default=None)
        if group is None:
            return None
        people = self._groups.pop(group)
        person = next(iter(people))
        line = people.pop(person)
        item = line.popleft()
        if line:
            people[person] = line
        if people:
            self._groups[group] = people
        return group, item

    def longest(self) -> int:
        """Return the length of the longest group."""
        return max(map(_length, self._groups.values()), default=0)

    def pop_newest_of_longest(self) -> T:
        """Remove the newest item of the person with the most items in the longest group. Raises ValueError if empty."""
        group, people = max(self._groups.items(), key=lambda one: _length(one[1]))
        person, line = max(people.items(), key=lambda one: len(one[1]))
        item = line.pop()
        if not line:
            del people[person]
        if not people:
            del self._groups[group]
        return item


def _length(people: dict[Hashable, deque[T]]) -> int:
    return sum(map(len, people.values()))
