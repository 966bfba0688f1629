"""Token buckets that limit request rates, kept in this process's memory: a hanging Redis cannot delay a request.

A bucket holds a minute's worth of requests and refills steadily, so that a burst passes and a flood does not.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_BUCKETS = 20_000  # beyond that full buckets are dropped: they carry no information


@dataclass
class Bucket:
    left: float
    at: float


class Buckets:
    """Token buckets by key: `take` uses up one request; it returns 0, or the seconds until one is available."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.lock = threading.Lock()
        self.known: dict[str, Bucket] = {}

    def take(self, who: str, *, per_minute: int) -> int:
        if per_minute <= 0:
            return 0
        with self.lock:
            now = self.clock()
            if len(self.known) > MOST_BUCKETS:
                self._forget(now)
            bucket = self.known.setdefault(who, Bucket(per_minute, now))
            bucket.left = min(per_minute, bucket.left + (now - bucket.at) * per_minute / 60)
            bucket.at = now
            if bucket.left < 1:
                return math.ceil((1 - bucket.left) * 60 / per_minute)
            bucket.left -= 1
            return 0

    def _forget(self, now: float) -> None:
        """Drop buckets untouched for a minute: they are full again."""
        self.known = {who: one for who, one in self.known.items() if now - one.at < 60}


buckets = Buckets()
