"""How long each watch of one kind is to last, so that many namespaces do not open many watches at once. Pure.

A watch ends to be opened again, which costs the API server a request. Few watches last as briefly as a quiet cache needs
to be confirmed; of many, one ends at a time, and each lasts as long as that takes.
"""

import math

SPACING_SECONDS = 5.0  # between two ends: two processes that watch (watcher, tasks) open four watches in ten seconds


class WatchEnds:
    """When the watches of one kind in this process end; times in seconds of one clock."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}  # by namespace

    def seconds(self, namespace: str, least: float, *, now: float) -> int:
        """Return for how many seconds the namespace's watch, opened now, is to last: at least `least`."""
        self._ends.pop(namespace, None)
        at = now + least
        for other in sorted([*self._ends.values()]):
            if abs(other - at) < SPACING_SECONDS:
                at = other + SPACING_SECONDS
        self._ends[namespace] = at
        return math.ceil(at - now)

    def forget(self, namespace: str) -> None:
        self._ends.pop(namespace, None)
