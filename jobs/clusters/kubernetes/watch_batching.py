"""Between two readings of a watch, so that what comes meanwhile is read in one piece.

Most of what an event costs us is its way from the socket, not what it says: ten read together cost as much as three that come
alone. The first event after a quiet while is read at once. Nothing is held back but our own reading: the connection goes on
receiving, because a server whose watchers do not take what it sends slows down for everybody.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

Pause = Callable[[int], Awaitable[None]]  # between two readings; is told the bytes of the one before
# What should wait unread at most. After a quiet while nobody knows what comes, so the connection takes more (client.PARSED_BYTES).
MOST_BYTES = 1 << 20
# Of the event loop, from the end of a rest until all is taken: poll, decrypt and parse, wake the reader, and as many again.
TURNS = 8
# How the API server begins an event (k8s.io/apimachinery ObjectMeta: fields in this order). What looks otherwise is kept.
_STATE = re.compile(
    rb'\{"type":"(?:ADDED|MODIFIED)","object":\{"kind":"\w+","apiVersion":"v1",'
    rb'"metadata":\{"name":"[^"]*","namespace":"[^"]*","uid":"([^"]+)"'
)


def newest(lines: list[bytes]) -> list[bytes]:
    """Of events that were read in one piece, without those whose object says something newer in it: a watch tells whole states.

    Nothing is folded across a bookmark, which may be the end of a list, or across any other word of the server.
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
    """Of one watch. `seconds` says how long it may be now; less where much comes."""

    def __init__(self, seconds: Callable[[], float], *, clock: Callable[[], float] = time.monotonic):
        self._seconds, self._clock = seconds, clock
        self._read_at = clock()
        self._over: asyncio.Event | None = None

    async def take(self, size: int) -> None:
        """After so many bytes were read, and everything in them was taken."""
        before, self._read_at = self._read_at, self._clock()
        seconds = self.length(size, since=self._read_at - before)
        self._over = over = asyncio.Event()
        handle = asyncio.get_running_loop().call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            handle.cancel()

    def length(self, size: int, *, since: float) -> float:
        """Seconds, after `size` bytes that came in `since` seconds."""
        return min(self._seconds(), MOST_BYTES * max(since, 0.001) / max(size, 1))

    async def end(self) -> None:
        """Read now what has come: somebody is about to decide. Returns when it was taken."""
        if self._over is not None:
            self._over.set()
            for _ in range(TURNS):
                await asyncio.sleep(0)
