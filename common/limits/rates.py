"""Token buckets that limit request rates, kept in this process's memory: a hanging Redis cannot delay a request.

A bucket holds a minute's worth of requests and refills steadily, so that a burst passes and a flood does not.
common/limits/shared_rates.py reports to other processes what was taken here, and takes off here what others let through.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MOST_BUCKETS = 20_000  # beyond that full buckets are dropped: they carry no information
FORGET_SECONDS = 1.0  # between two looks for full ones, which take milliseconds
UNREPORTED_SHARE = 1 / 16  # of its limit: what a process may let through of one key without reporting it to the others

Taken = dict[str, tuple[int, int]]  # bucket's name -> requests taken, and the limit per minute


@dataclass(slots=True)
class Bucket:
    """Requests left of one key. Below zero once other processes have let through more than there was."""

    name: str
    per_minute: int
    left: float
    at: float

    def refill(self, now: float) -> None:
        self.left = min(self.per_minute, self.left + (now - self.at) * self.per_minute / 60)
        self.at = now

    def limit(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.left = max(-per_minute, min(per_minute, self.left))

    def spend(self, requests: int) -> None:
        """Take off requests that another process let through, down to a minute's worth below zero."""
        self.left = max(-self.per_minute, self.left - requests)

    def is_full(self, now: float) -> bool:
        return self.left + (now - self.at) * self.per_minute / 60 >= self.per_minute


class Buckets:
    """Token buckets by key: `take` uses up one request; it returns 0, or the seconds until one is available.

    `name` makes of a key what other processes know it by. Where `wake` is set, requests are counted for them: it is
    called, with the lock held, by the first `take` after a `drain`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, name: Callable[[str], str] = str):
        self.clock = clock
        self.name = name
        self.lock = threading.Lock()
        self.known: dict[str, Bucket] = {}
        self.named: dict[str, Bucket] = {}  # the known ones, and those that only other processes took from
        self.taken: dict[str, int] = {}  # key -> requests since the last `drain`
        self.wake: Callable[[], None] | None = None
        self.forgot_at = -math.inf

    def take(self, who: str, *, per_minute: int) -> int:
        if per_minute <= 0:
            return 0
        with self.lock:
            now = self.clock()
            if len(self.known) > MOST_BUCKETS:
                self._forget(now)
            bucket = self.known.get(who)
            if bucket is None or bucket.per_minute != per_minute:
                bucket = self._own(who, per_minute, now)
            bucket.refill(now)
            if bucket.left < 1:
                return math.ceil((1 - bucket.left) * 60 / per_minute)
            bucket.left -= 1
            if self.wake is not None:
                if not self.taken:
                    self.wake()
                self.taken[who] = self.taken.get(who, 0) + 1
            return 0

    def drain(self, *, seconds: float) -> Taken:
        """Return what was taken since the last call, `seconds` ago, from buckets that have to be reported to others."""
        with self.lock:
            taken, self.taken = self.taken, {}
        found = ((self.known.get(who), requests) for who, requests in taken.items())
        return {
            bucket.name: (requests, bucket.per_minute)
            for bucket, requests in found
            if bucket is not None and requests > bucket.per_minute * seconds / 60 * UNREPORTED_SHARE
        }

    def spend(self, taken: Mapping[str, tuple[int, int]]) -> None:
        """Take off what another process let through. Buckets beyond MOST_BUCKETS are not made for it."""
        with self.lock:
            now = self.clock()
            if len(self.named) + len(taken) > MOST_BUCKETS:
                self._forget(now)
            for name, (requests, per_minute) in taken.items():
                bucket = self.named.get(name)
                if bucket is None:
                    if len(self.named) >= MOST_BUCKETS:
                        continue
                    bucket = self.named[name] = Bucket(name, per_minute, per_minute, now)
                bucket.refill(now)
                bucket.spend(requests)

    def _own(self, who: str, per_minute: int, now: float) -> Bucket:
        """Return the bucket of a key that is new here, or has another limit than before."""
        name = self.name(who)
        bucket = self.named.get(name)
        if bucket is None:
            bucket = self.named[name] = Bucket(name, per_minute, per_minute, now)
        bucket.limit(per_minute)
        self.known[who] = bucket
        return bucket

    def _forget(self, now: float) -> None:
        if now - self.forgot_at < FORGET_SECONDS:
            return
        self.forgot_at = now
        self.known = {who: one for who, one in self.known.items() if not one.is_full(now)}
        self.named = {name: one for name, one in self.named.items() if not one.is_full(now)}
