"""Rest between two reads of a watch, so that all events of that time are read at once.

Most of an event's cost is its way from the socket, not its content: ten read together cost as much as three that arrive
alone. The first event after a quiet time is read at once. Only our own reading is delayed: the connection goes on
receiving, because a server whose watchers do not read slows down for all of them.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

Pause = Callable[[int], Awaitable[None]]  # awaited between two reads, with the byte count of the last one
# How much should wait unread at most. What comes after a quiet time is unknown, so the connection accepts more
# (client.PARSED_BYTES).
MOST_BYTES = 1 << 20
# Iterations of the event loop from the end of a rest until everything is taken: poll, decrypt and parse, wake the
# reader, and the same number again.
TURNS = 8
# How the API server begins an event (k8s.io/apimachinery ObjectMeta: fields in this order). Other lines are kept.
_STATE = re.compile(
    rb'\{"type":"(?:ADDED|MODIFIED)","object":\{"kind":"\w+","apiVersion":"v1",'
    rb'"metadata":\{"name":"[^"]*","namespace":"[^"]*","uid":"([^"]+)"'
)


def newest(lines: list[bytes]) -> list[bytes]:
    """Return the events of one read without those whose object has a newer one in it: each event holds a whole state.

    Events are never merged across a bookmark, which may be the end of a list, or across any other message of the
    server.
    """
    kept, later = list[bytes](), set[bytes]()
    for line in reversed(lines):
        state = _STATE.match(line)
        if state is None:
            later.clear()
        elif state[1] in later:
            continue
        else:
            later.add(state[1])
        kept.append(line)
    kept.reverse()
    return kept


class Rest:
    """The rests of one watch. `seconds` returns how long one may be now; it is less at high volume."""

    def __init__(self, seconds: Callable[[], float], *, clock: Callable[[], float] = time.monotonic):
        self._seconds, self._clock = seconds, clock
        self._read_at = clock()
        self._over: asyncio.Event | None = None

    async def take(self, size: int) -> None:
        """Rest after `size` bytes were read, and everything in them was taken."""
        before, self._read_at = self._read_at, self._clock()
        seconds = self.length(size, since=self._read_at - before)
        self._over = over = asyncio.Event()
        handle = asyncio.get_running_loop().call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            handle.cancel()

    def length(self, size: int, *, since: float) -> float:
        """Return the seconds to rest after `size` bytes that came in `since` seconds."""
        return min(self._seconds(), MOST_BYTES * max(since, 0.001) / max(size, 1))

    async def end(self) -> None:
        """End the rest and read what has come, because a decision is about to be made. Returns when it was taken."""
        if self._over is not None:
            self._over.set()
            for _ in range(TURNS):
                await asyncio.sleep(0)
