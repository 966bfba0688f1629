"""A thread-safe cache of what a list and its watch have returned. Holds facts, not objects.

`as_of` is when the API server last sent something on this watch: an event, a bookmark, or the whole list. It is earlier
by as long as the event may have waited to be read, and never later than the state held here, so a silent watch shows as
an old cache.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

REMEMBER_SECONDS = 600.0  # how long the end of deleted pods is remembered


class Fact(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


K = TypeVar("K")  # what facts belong to: an attempt, or the name of a node
F = TypeVar("F", bound=Fact)


class Picture(Generic[K, F]):
    """The cached view. `key` returns what a fact belongs to; `clock` returns seconds since the epoch."""

    def __init__(self, key: Callable[[F], K], *, clock: Callable[[], float]):
        self._key, self._clock = key, clock
        self._lock = threading.Lock()
        self._facts: dict[K, dict[str, F]] = defaultdict(dict)
        self._gone: dict[K, dict[str, tuple[float, F]]] = defaultdict(dict)  # by UID
        self._put_at: dict[str, float] = {}  # by UID, since the last list
        self.as_of: float | None = None

    def of(self, key: K) -> tuple[F, ...]:
        with self._lock:
            return tuple(self._facts.get(key, {}).values())

    def gone(self, key: K) -> tuple[F, ...]:
        with self._lock:
            return tuple(fact for _, fact in self._gone.get(key, {}).values())

    def all_keys(self) -> list[K]:
        with self._lock:
            return [key for key, facts in self._facts.items() if facts]

    def everything(self) -> list[F]:
        with self._lock:
            return [fact for facts in self._facts.values() for fact in facts.values()]

    def confirm(self, at: float) -> None:
        """Record that the server sent something at this time, so there was nothing newer before it."""
        with self._lock:
            self.as_of = max(self.as_of or 0.0, at)

    def put(self, fact: F) -> bool:
        """Store a fact from an event, or from the answer to our own creation.

        Returns False for one older than the cached one.
        """
        with self._lock:
            key = self._key(fact)
            there = self._facts[key].get(fact.name)
            is_older = there is not None and there.uid == fact.uid and there.version >= fact.version
            if is_older or fact.uid in self._gone.get(key, {}):
                return False
            self._facts[key][fact.name] = fact
            self._put_at[fact.uid] = self._clock()
            return True

    def drop(self, fact: F) -> None:
        """Remove a deleted fact. Its name may have been taken again since, so only this UID is removed."""
        with self._lock:
            self._drop(fact)

    def replace(self, facts: Iterable[F], *, at: float, version: int = 0) -> set[K]:
        """Replace the cache with a whole list. Return the keys whose facts changed.

        Versions may be smaller than before: an API server restored from a backup restarts its numbering. `at` is when
        the list was requested, `version` the list's resource version.
        """
        with self._lock:
            before = {fact.uid: fact for facts_of in self._facts.values() for fact in facts_of.values()}
            now = {fact.uid: fact for fact in facts}
            for uid, fact in before.items():
                if uid not in now and self._is_younger(fact, at=at, version=version):
                    now[uid] = fact
            changed = {self._key(fact) for uid, fact in now.items() if before.get(uid) != fact}
            for uid, fact in before.items():
                if uid not in now:
                    changed.add(self._key(fact))
                    self._drop(fact)
            self._facts.clear()
            self._put_at = {uid: put for uid, put in self._put_at.items() if put >= at and uid in now}
            for fact in now.values():
                self._facts[self._key(fact)][fact.name] = fact
                self._gone.get(self._key(fact), {}).pop(fact.uid, None)
            self.as_of = at
            return changed

    def _is_younger(self, fact: F, *, at: float, version: int) -> bool:
        """Whether we created it while the list was in flight: the list is older and cannot include it."""
        return self._put_at.get(fact.uid, 0.0) >= at and fact.version > version > 0

    def _drop(self, fact: F) -> None:
        key, now = self._key(fact), self._clock()
        self._put_at.pop(fact.uid, None)
        there = self._facts.get(key, {}).get(fact.name)
        if there is not None and there.uid == fact.uid:
            del self._facts[key][fact.name]
            if not self._facts[key]:
                del self._facts[key]
        self._gone[key][fact.uid] = (now, fact)
        self._forget(now - REMEMBER_SECONDS)

    def _forget(self, limit: float) -> None:
        """Forget deleted facts. Attempts are remembered in the order in which they first lost one."""
        for key in list(self._gone):
            if max(at for at, _ in self._gone[key].values()) > limit:
                break
            del self._gone[key]
