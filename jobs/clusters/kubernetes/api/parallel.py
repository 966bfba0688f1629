"""Run many calls concurrently: the limit grows a little with each good answer and halves with a refusal."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from common.errors import Unreachable

from .answers import ApiAnswer

T = TypeVar("T")
FIRST, MOST = 64, 128


@dataclass
class Limit:
    """How many calls may be in flight. Pure; `now` and `until` in seconds of one clock."""

    at_once: float = FIRST
    paused_until: float = 0.0

    def good(self) -> None:
        self.at_once = min(MOST, self.at_once + 1 / self.at_once)

    def crowded(self, *, now: float, wait: float) -> None:
        """Halve the limit. Refusals of calls in flight at the same time have one cause and count once."""
        if now >= self.paused_until:
            self.at_once = max(1.0, self.at_once / 2)
        self.paused_until = max(self.paused_until, now + wait)

    def is_open(self, number: int, *, now: float) -> bool:
        """Whether the caller of this number may proceed."""
        return number < self.at_once and now >= self.paused_until


async def each(
    things: Iterable[T],
    call: Callable[[T], Awaitable[ApiAnswer]],
    *,
    limit: Limit,
    seconds: float,
    stop_at: frozenset[int] = frozenset(),
) -> list[tuple[T, ApiAnswer]]:
    """Return one good or final answer for each thing. Raises Unreachable when some are left after `seconds`.

    Overload, server errors and lost answers are tried again: creating under a fixed name is safe to repeat. The first
    status in `stop_at` ends it early: if one call is refused for good, the others need not be sent.
    """
    waiting, done = deque(things), []
    count, end = len(waiting), time.monotonic() + seconds
    last = "no answer"

    async def caller(number: int) -> None:
        nonlocal last
        while waiting and time.monotonic() < end:
            if not limit.is_open(number, now=time.monotonic()):
                await asyncio.sleep(0.05)
                continue
            thing = waiting.popleft()
            try:
                answer = await call(thing)
            except Unreachable as error:
                waiting.append(thing)
                last = str(error)
                limit.crowded(now=time.monotonic(), wait=0.5)
                continue
            if answer.status == 429 or answer.status >= 500:
                waiting.append(thing)
                last = answer.words
                limit.crowded(now=time.monotonic(), wait=answer.wait_seconds)
                continue
            limit.good()
            done.append((thing, answer))
            if answer.status in stop_at:
                waiting.clear()

    await asyncio.gather(*(caller(number) for number in range(min(MOST, count))))
    if waiting:
        raise Unreachable(f"{len(done)} of {count} done, then: {last}")
    return done
