"""Many calls at once, as many as the server bears: a little more after each good answer, half after a refusal."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from common.errors import Unreachable

from .answers import Answer

T = TypeVar("T")
FIRST, MOST = 64, 128


@dataclass
class Limit:
    """How many may be under way. Pure; `now` and `until` in seconds of one clock."""

    at_once: float = FIRST
    paused_until: float = 0.0

    def good(self) -> None:
        self.at_once = min(MOST, self.at_once + 1 / self.at_once)

    def crowded(self, *, now: float, wait: float) -> None:
        """Those under way at the same moment say the same: it counts once."""
        if now >= self.paused_until:
            self.at_once = max(1.0, self.at_once / 2)
        self.paused_until = max(self.paused_until, now + wait)

    def is_open(self, number: int, *, now: float) -> bool:
        """Whether the caller of this number may go on."""
        return number < self.at_once and now >= self.paused_until


async def each(
    things: Iterable[T],
    call: Callable[[T], Awaitable[Answer]],
    *,
    limit: Limit,
    seconds: float,
    stop_at: frozenset[int] = frozenset(),
) -> list[tuple[T, Answer]]:
    """One good or final answer for each thing. Raises Unreachable when some are left after `seconds`.

    A crowded server, a fault of its own and a lost answer are tried again: creating is safe to repeat under one name.
    The first status in `stop_at` ends it early: where one is refused for good, the others need not be asked for.
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
