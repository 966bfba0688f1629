"""One Redis subscription per process and event loop, for every stream that waits for updates: /live, and growing logs.

A stream authenticates, notes which teams' hints it may receive, gives back its thread, and from then on is only a
coroutine on a queue (its database connection was returned with the response headers: common/db/db_connections.py). Lost
hints need no replay: every listener begins with "sync", which means fetch everything, and gets another after any gap. A
stream ends when the access it was opened with does.
"""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from asgiref.sync import SyncToAsync
from django.conf import settings
from redis.asyncio import Redis
from redis.exceptions import RedisError

from ..db import db_connections
from ..http.streaming import aside
from . import redis_trouble
from .doorbell import CHANNEL

log = logging.getLogger(__name__)

open_streams: Counter[int] = Counter()  # by user; changed in the event loop only

HEARTBEAT_SECONDS = 15.0  # shorter than the idle timeout of every common proxy
LIFETIME_SECONDS = 15 * 60.0  # then the browser reconnects, and is authenticated again
RECHECK_SECONDS = 30.0  # a stream's access is also checked without a hint: access can expire, and hints can be lost
RECHECK_WITHOUT_HINTS_SECONDS = 3.0
SYNC_WITHOUT_HINTS_SECONDS = 30.0  # without Redis pages have to fetch everything this often
SETTLE_SECONDS = 1.0
RECONNECT_SECONDS = (0.5, 5.0)
MOST_OPEN = 100  # streams and waits of one user: each has a connection, and each new log line wakes its followers
RETRY_AFTER_SECONDS = 5
SYNC = "event: sync\ndata: {}\n\n"
HEARTBEAT = "event: beat\ndata:\n\n"  # an event, not a comment: a page has to see that its stream is alive

Hint = tuple[int, str]  # (job, what)


class StreamAccess(Protocol):
    """What a stream was opened with: the user, and whether that access still holds (accounts/access.py)."""

    @property
    def user(self) -> int: ...

    def holds(self) -> bool:
        """Return whether the access still holds; queries the database."""


class Listener:
    """One open stream: the teams whose hints it may receive (None: all), its unsent hints, and its access."""

    def __init__(self, teams: frozenset[int] | None, access: StreamAccess):
        self.teams, self.access = teams, access
        self.is_doubtful = False
        self.checked_at = time.monotonic()
        self.pending: dict[Hint, None] = {}  # an ordered set: a repeated hint is sent once
        self.wants_sync = True
        self.news = asyncio.Event()

    def receive(self, hint: dict[str, Any]) -> None:
        if self.teams is None or hint["team"] in self.teams:
            self.pending[(hint["job"], hint["what"])] = None
            self.news.set()

    def miss(self) -> None:
        """Record that hints may have been lost."""
        self.wants_sync = self.is_doubtful = True
        self.news.set()

    def doubt(self, user: int) -> None:
        """Mark the access for a check if this user's permissions changed."""
        if user == self.access.user:
            self.is_doubtful = True
            self.news.set()

    async def may_go_on(self, hub: "Hub") -> bool:
        """Return whether the stream may continue; checked before every send.

        Queries the database only where there is doubt or the last check is too old.
        """
        now = time.monotonic()
        age = RECHECK_SECONDS if hub.subscribed.is_set() else RECHECK_WITHOUT_HINTS_SECONDS
        if not self.is_doubtful and now - self.checked_at < age:
            return True
        self.is_doubtful, self.checked_at = False, now
        try:
            return await aside(self.access.holds)
        except db_connections.AWAY:  # nothing can be revoked meanwhile, nor read
            self.checked_at = now - age + RECHECK_WITHOUT_HINTS_SECONDS
            return True

    async def hears_of(self, job: int, within: float) -> bool:
        """Return whether a hint on this job came, or may have been missed, within `within` seconds.

        Also true if the access is in doubt.
        """
        try:
            async with asyncio.timeout(within):
                while not self.is_doubtful:
                    await self.news.wait()
                    hints, sync = self.pending, self.wants_sync
                    self.forget()
                    if sync or any(number == job for number, _ in hints):
                        return True
                return True
        except TimeoutError:
            return False

    def forget(self) -> None:
        """Drop pending hints: for a caller about to read the rows, which will see their effect."""
        self.pending, self.wants_sync = {}, False
        self.news.clear()

    def take(self) -> str:
        """Return the text to send now; a sync makes single hints unnecessary."""
        hints, self.pending, sync = list(self.pending), {}, self.wants_sync
        self.wants_sync = False
        self.news.clear()
        if not sync and not hints:  # woken by a doubt that proved unfounded
            return HEARTBEAT
        return SYNC if sync else f"event: hints\ndata: {json.dumps(hints)}\n\n"


class Hub:
    """One subscription to Redis per process and event loop, held while there are listeners."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.task: asyncio.Task[None] | None = None
        self.subscribed = asyncio.Event()  # set while the subscription is active

    def join(self, listener: Listener) -> None:
        self.listeners.add(listener)
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._listen())

    def leave(self, listener: Listener) -> None:
        self.listeners.discard(listener)
        if not self.listeners and self.task is not None:
            self.task.cancel()
            self.task = None
            self.subscribed.clear()

    async def settle(self) -> None:
        """Wait until the subscription is active, so that no later hint is lost.

        Waits at most SETTLE_SECONDS: without Redis pages must come up all the same.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self.subscribed.wait(), SETTLE_SECONDS)

    async def _listen(self) -> None:
        """Relay hints until cancelled, when the last listener leaves.

        A dead Redis costs latency only: streams then make their pages fetch everything, slowly.
        """
        pause, longest = RECONNECT_SECONDS
        while True:
            try:
                await self._relay()
            except (RedisError, OSError) as error:
                redis_trouble.failed(error)
            pause = RECONNECT_SECONDS[0] if self.subscribed.is_set() else min(2 * pause, longest)
            self.subscribed.clear()
            await asyncio.sleep(pause)

    async def _relay(self) -> None:
        async with Redis.from_url(settings.REDIS_URL, health_check_interval=10) as redis, redis.pubsub() as channel:
            await channel.subscribe(CHANNEL)
            self.subscribed.set()
            redis_trouble.worked()
            for listener in self.listeners:
                listener.miss()
            while True:
                message = await channel.get_message(ignore_subscribe_messages=True, timeout=HEARTBEAT_SECONDS)
                if message is not None:
                    self.dispatch(message["data"])

    def dispatch(self, text: bytes) -> None:
        """Pass one message on to the listeners it concerns; anything that is no hint is dropped."""
        try:
            hint = json.loads(text)
            for listener in self.listeners:
                if "lost" in hint:
                    listener.miss()
                elif "access" in hint:
                    listener.doubt(hint["access"])
                else:
                    listener.receive(hint)
        except (ValueError, KeyError, TypeError):
            log.warning("not a hint: %.80r", text)


_hubs: dict[int, Hub] = {}


def _hub() -> Hub:
    """Return this event loop's hub; a process serves from one loop, tests from many."""
    return _hubs.setdefault(id(asyncio.get_running_loop()), Hub())


def too_many(user: int) -> str:
    """Return why this user may open no further stream; empty if they may."""
    words = f"{MOST_OPEN} of your streams and waits are open; close some, or follow several jobs through their list"
    return words if open_streams[user] >= MOST_OPEN else ""


@asynccontextmanager
async def counted(user: int) -> AsyncIterator[None]:
    """Count a stream from its first piece to its last: a response that the client never reads must not count."""
    open_streams[user] += 1
    try:
        yield
    finally:
        open_streams[user] -= 1
        if not open_streams[user]:
            del open_streams[user]


@asynccontextmanager
async def listening(listener: Listener) -> AsyncIterator[Hub]:
    """Join the hub and yield it once no later hint can be missed. For streams: also gives back the request's thread."""
    _let_thread_go()
    hub = _hub()
    hub.join(listener)
    try:
        await hub.settle()
        yield hub
    finally:
        hub.leave(listener)


def _let_thread_go() -> None:
    """End the idle thread that Django keeps for the synchronous parts of this request until its response ends.

    A stream would keep it for minutes. Ending it now is safe: if the request needs another one, asgiref starts it.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(context, None) if context else None
    if executor is not None:
        executor.shutdown(wait=False)
