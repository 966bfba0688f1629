"""Keep a cache current: list, then watch from there; after any error, list again. One per resource.

Where the server offers it, the list comes through the watch itself (`sendInitialEvents`, Kubernetes 1.32 and later): it
is as fresh, and costs the server less. A watch is opened for a few seconds only, or longer where there are many
(watch_ends.py). Before it ends in good order, and about once a minute, the server sends a bookmark
(apiserver/pkg/storage/cacher, `pretimeoutTime`, `bookmarkFrequency`). So a quiet cluster confirms the cache at a small
constant cost, and a silently dead connection is detected.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic

from common import faultpoints
from common.errors import Unreachable

from ..api.answers import need
from ..api.client import Api
from ..api.objects import get, is_object, text, version
from ..api.watch_batching import Pause
from .cache import F, K, Picture

log = logging.getLogger(__name__)

WATCH_SECONDS = 10  # the cache of a quiet cluster is at most this old
BOOKMARK_SECONDS = 75.0  # during a longer watch the server sends one at least this often
LATE_SECONDS = 5.0  # a connection that is silent for longer than it should be is dead
SHORTEST_SECONDS = 0.2
PAGE = "500"
LONGEST_PAUSE = 5.0
DENIED_SECONDS = 300.0  # until an optional right that was denied is tried again
LONGEST_SILENCE = 2  # consecutive watches that ended well without a single event: the server has lost our version
INITIAL_END = "k8s.io/initial-events-end"
_NOT_OFFERED = (400, 422)
_KINDS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


class Gone(Exception):
    """The watch's version is no longer kept (410), or the server requires a new list for another reason."""


class Denied(Exception):
    """We may not read this resource, and can do without."""


class Reflector(Generic[K, F]):
    """A list and watch of one resource.

    `read` turns an object into a fact, or None if it is not ours. `changed` is called with every key that a new list
    changed. `fact_changed` is called with each fact that an event changed, and with whether it is gone; without it,
    `changed` is called for events, too.

    `parse` turns a line into an event, `wanted` holds the selectors; access may be denied if `is_optional`, and where
    `denied` is given, it is called then, and nothing is followed any more. `rest` is awaited between two reads
    (watch_batching.py). `lasting` returns for how many seconds a watch is opened; it is called with the least. Without
    `has_bookmarks` the server may be silent for as long as a watch lasts.
    """

    def __init__(
        self, api: Api, path: str, *, wanted: Mapping[str, str], read: Callable[[Any], F | None], picture: Picture[K, F],
        key: Callable[[F], K], changed: Callable[[K], None], clock: Callable[[], float], is_optional: bool = False,
        fact_changed: Callable[[F, bool], None] | None = None, parse: Callable[[bytes], Any] = json.loads,
        rest: Pause | None = None, lasting: Callable[[float], int] = round, denied: Callable[[], None] | None = None,
        has_bookmarks: bool = True,
    ):  # fmt: skip
        self._api, self._path, self._wanted = api, path, dict(wanted)
        self._read, self._picture, self._key, self._changed = read, picture, key, changed
        self._clock, self._is_optional, self._denied = clock, is_optional or denied is not None, denied
        self._parse, self._pause, self._lasting, self._has_bookmarks = parse, rest, lasting, has_bookmarks
        self._fact_changed = fact_changed or (lambda fact, is_gone: changed(key(fact)))
        self._version = ""
        self._rested = 0.0  # seconds of rest before the data read now
        self._silent = 0
        self.can_stream = True
        self.lists = self.streams = 0  # for metrics and tests
        self.trouble = ""  # why the last attempt to read failed; empty once something was read again

    async def follow(self) -> None:
        """Run for ever, or until `denied` was called."""
        pause = 0.1
        while True:
            began, before = time.monotonic(), self._version
            try:
                await self._once()
                pause = 0.1
                # A server under load cuts slow watchers: then the next watch starts at once. A watch that brought
                # nothing is not repeated as fast as it ends, as a proxy may do that to every watch.
                if self._version == before and time.monotonic() < began + SHORTEST_SECONDS:
                    await asyncio.sleep(SHORTEST_SECONDS)
            except Denied as error:
                log.info("%s: %s; going on without", self._path, error)
                if self._denied is not None:
                    return self._denied()
                await asyncio.sleep(DENIED_SECONDS)
            except (Unreachable, Gone) as error:
                self._version, self.trouble = "", str(error)
                log.info("%s: %s; listing again", self._path, error)
                pause = 0.1 if time.monotonic() - began > LONGEST_PAUSE else min(LONGEST_PAUSE, pause * 2)
                await asyncio.sleep(pause * secrets.SystemRandom().uniform(0.5, 1.0))
            except Exception as error:
                self._version, self.trouble = "", f"{type(error).__name__}: {error}"
                log.exception("%s: the watch failed", self._path)
                await asyncio.sleep(LONGEST_PAUSE)

    async def _once(self) -> None:
        if not self._version and self.can_stream and await self._stream():
            return
        if not self._version:
            await self._list()
        events = 0
        with faultpoints.around("kube.watch"):
            async for line in self._watch(resourceVersion=self._version):
                self._take(self._parse(line))
                events += 1
        self._silent = 0 if events else self._silent + 1
        if self._silent >= LONGEST_SILENCE:
            self._silent = 0
            raise Gone("it has no changes from our version on")

    def _watch(self, **params: str) -> Any:
        seconds = self._lasting(WATCH_SECONDS)
        asked = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), **params}
        silence = (min(seconds, BOOKMARK_SECONDS) if self._has_bookmarks else seconds) + LATE_SECONDS
        return self._api.lines(self._path, params={**self._wanted, **asked}, silence_seconds=silence, rest=self._rest)

    async def _rest(self, size: int) -> None:
        if self._pause is not None and self._version:  # a list is read as fast as it comes
            began = self._clock()
            await self._pause(size)
            self._rested = self._clock() - began

    async def _stream(self) -> bool:
        """List and watch in one request. False if the server does not support it: nothing was taken."""
        with faultpoints.around("kube.watch"):
            return await self._take_stream()

    async def _take_stream(self) -> bool:
        at, facts, is_whole = self._clock(), list[F](), False
        async for line in self._watch(sendInitialEvents="true", resourceVersionMatch="NotOlderThan"):
            event = self._parse(line)
            if is_whole:
                self._take(event)
            elif get(event, "type") == "ERROR":
                self.can_stream = get(event, "object", "code") not in _NOT_OFFERED
                return False
            elif get(event, "type") == "BOOKMARK":
                if get(event, "object", "metadata", "annotations", INITIAL_END) == "true":
                    self._draw(facts, at=at, meta=get(event, "object", "metadata"))
                    self.streams += 1
                    is_whole = True
            elif (fact := self._fact(get(event, "object"))) is not None:
                facts.append(fact)
        # a server that does not know the parameter just watches and never marks the end of the list
        self.can_stream = is_whole
        return is_whole

    async def _list(self) -> None:
        at, facts, token = self._clock(), list[F](), ""
        while True:
            params = {**self._wanted, "limit": PAGE, **({"continue": token} if token else {})}
            with faultpoints.around("kube.list"):
                answer = await self._api.call("GET", self._path, params=params)
            if answer.status == 410:
                raise Gone("the list took too long to read")
            if answer.status == 403 and self._is_optional:
                raise Denied(answer.words)
            body = need(answer, "the list")
            facts += [fact for one in body.get("items") or [] if (fact := self._fact(one)) is not None]
            meta = body.get("metadata") or {}
            token = meta.get("continue") or ""
            if not token:
                break
        self.lists += 1
        self._draw(facts, at=at, meta=meta)

    def _draw(self, facts: list[F], *, at: float, meta: Any) -> None:
        for key in self._picture.replace(facts, at=at, version=version(meta)):
            self._changed(key)
        self._version, self.trouble = text(get(meta, "resourceVersion")), ""

    def _take(self, event: Any) -> None:
        kind, thing = get(event, "type"), get(event, "object")
        if kind not in _KINDS or not is_object(thing):  # ERROR, or an unknown type
            raise Gone(str(get(thing, "message") or get(thing, "code") or "an error without a message"))
        self._go_on_from(get(thing, "metadata"))
        fact = None if kind == "BOOKMARK" else self._fact(thing)
        if fact is not None:
            if kind == "DELETED":
                self._picture.drop(fact)
            else:
                self._picture.put(fact)
            self._fact_changed(fact, kind == "DELETED")
        self._picture.confirm(self._clock() - self._rested)  # it may have waited that long for us

    def _go_on_from(self, meta: Any) -> None:
        """Store the event's version, which only grows within one watch.

        Raises Gone if it does not: the server was restored from a backup, and deletions since then are not reported.
        """
        now, before = version(meta), version({"resourceVersion": self._version})
        if now and now < before:
            raise Gone(f"its versions go back from {before} to {now}")
        self._version = text(get(meta, "resourceVersion")) or self._version

    def _fact(self, thing: Any) -> F | None:
        try:
            return self._read(thing)
        except Exception:  # one malformed object must not hide all others
            log.exception("%s: an object was not understood", self._path)
            return None
