"""Keeps a picture up to date: list, then watch from there; whatever goes wrong, list again. One per resource.

A watch is opened for a few seconds only. Before it ends in good order the server sends a bookmark
(apiserver/pkg/storage/cacher, `pretimeoutTime`), so a quiet cluster confirms the picture at a constant, small price,
and one whose connection died without a word is found out.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, Generic

from controlplane.errors import Unreachable

from .kube_answers import need
from .kube_http import Api
from .kube_picture import F, Key, Picture

log = logging.getLogger(__name__)

WATCH_SECONDS = 10  # a picture of a quiet cluster is at most this old
SILENCE_SECONDS = WATCH_SECONDS + 5.0
SHORTEST_SECONDS = 0.2
PAGE = "500"
LONGEST_PAUSE = 5.0


class Gone(Exception):
    """The version that the watch stands at is no longer kept (410), or the server wants a new list for another reason."""


class Reflector(Generic[F]):
    """`read` makes a fact of an object, None for what is none of ours; `changed` hears of every attempt with news."""

    def __init__(
        self, api: Api, path: str, *, selector: str, read: Callable[[Any], F | None], picture: Picture[F],
        key: Callable[[F], Key], changed: Callable[[Key], None], clock: Callable[[], float],
    ):  # fmt: skip
        self._api, self._path, self._selector = api, path, selector
        self._read, self._picture, self._key, self._changed = read, picture, key, changed
        self._clock = clock
        self._version = ""
        self.lists = 0  # for figures and tests

    async def follow(self) -> None:
        """For ever."""
        pause = 0.1
        while True:
            began = time.monotonic()
            try:
                await self._once()
                pause = 0.1
                if time.monotonic() < began + SHORTEST_SECONDS:  # a proxy that ends every watch at once is not raced
                    await asyncio.sleep(SHORTEST_SECONDS)
            except (Unreachable, Gone) as error:
                self._version = ""
                log.info("%s: %s; listing again", self._path, error)
                pause = 0.1 if time.monotonic() - began > LONGEST_PAUSE else min(LONGEST_PAUSE, pause * 2)
                await asyncio.sleep(pause * secrets.SystemRandom().uniform(0.5, 1.0))
            except Exception:
                self._version = ""
                log.exception("%s: the watch failed", self._path)
                await asyncio.sleep(LONGEST_PAUSE)

    async def _once(self) -> None:
        if not self._version:
            await self._list()
        params = {
            "labelSelector": self._selector, "watch": "1", "allowWatchBookmarks": "true",
            "resourceVersion": self._version, "timeoutSeconds": str(WATCH_SECONDS),
        }  # fmt: skip
        async for line in self._api.lines(self._path, params=params, silence_seconds=SILENCE_SECONDS):
            self._take(json.loads(line))

    async def _list(self) -> None:
        at, facts, token = self._clock(), [], ""
        while True:
            params = {"labelSelector": self._selector, "limit": PAGE, **({"continue": token} if token else {})}
            answer = await self._api.call("GET", self._path, params=params)
            if answer.status == 410:
                raise Gone("the list took too long to read")
            body = need(answer, "the list")
            facts += [fact for one in body.get("items") or [] if (fact := self._read(one)) is not None]
            meta = body.get("metadata") or {}
            token = meta.get("continue") or ""
            if not token:
                break
        self.lists += 1
        for key in self._picture.replace(facts, at=at):
            self._changed(key)
        self._version = str(meta.get("resourceVersion") or "")

    def _take(self, event: dict[str, Any]) -> None:
        kind, thing = event.get("type"), event.get("object")
        if kind == "ERROR" or not isinstance(thing, dict):
            said = thing if isinstance(thing, dict) else {}
            raise Gone(str(said.get("message") or said.get("code") or "an error without words"))
        self._version = str((thing.get("metadata") or {}).get("resourceVersion") or self._version)
        fact = None if kind == "BOOKMARK" else self._read(thing)
        if fact is not None:
            if kind == "DELETED":
                self._picture.drop(fact)
            else:
                self._picture.put(fact)
            self._changed(self._key(fact))
        self._picture.confirm(self._clock())
