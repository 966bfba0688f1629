"""The watches of pods, Services and Events: of one namespace each, or of all namespaces at once.

One set of watches for each namespace in use is what Muster's Roles allow. With many namespaces that is many watches, so
where the account may (deploy/all-namespaces.yaml), one set for all takes their place. What belongs to no namespace in use
is never reported. Without that right each watch lasts the longer, the more there are (watch_ends.py).
"""

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from common.errors import Unreachable
from jobs.core.attempt_ref import AttemptRef

from ..api import client, reviews
from ..api.client import Api
from ..api.decode import read_event
from ..api.watch_batching import Rest
from ..build import labels
from ..facts.events import WANTED, PodTrouble, read_trouble
from ..facts.pods import Owner, Pod, read_owner, read_pod
from .cache import Picture
from .change_queue import ChangeQueue
from .reflector import DENIED_SECONDS, Reflector
from .watch_ends import WatchEnds

log = logging.getLogger(__name__)

WRITER_REST_SECONDS = 0.08  # with a writer of rows, which must be quick
VISITOR_REST_SECONDS = 1.0  # without such a writer; a visit ends the rest early
# Of more namespaces in use, all are watched at once, where the account may: with few, reading only those is less.
MANY_NAMESPACES = 4
FILLED_SECONDS = 0.2  # between two looks whether the watches of all namespaces have brought their lists
NEEDED = [(verb, resource) for resource in ("pods", "services") for verb in ("list", "watch")]


class Scope:
    """The watches of one namespace, or of all (empty), from the creation on until `stop`, and their caches.

    Changes in a namespace that `is_used` does not know are not reported.
    """

    def __init__(
        self, api: Api, namespace: str, *, queue: ChangeQueue, ends: dict[str, WatchEnds], clock: Callable[[], float],
        is_used: Callable[[str], bool], denied: Callable[[], None] | None = None,
    ):  # fmt: skip
        self.namespace, self._api, self._queue, self._ends, self._clock = namespace, api, queue, ends, clock
        self._is_used, self._denied = is_used, denied
        self.pods: Picture[AttemptRef, Pod] = Picture(self._pod_key, clock=clock)
        self.owners: Picture[AttemptRef, Owner] = Picture(self._key, clock=clock)
        self.troubles: Picture[AttemptRef, PodTrouble] = Picture(self._key, clock=clock)
        self._pod_rest, self._owner_rest = Rest(self._rest_seconds), Rest(self._rest_seconds)
        self._following: list[Future[None]] = []
        self._watch()

    @property
    def as_of(self) -> float:
        """When the API server last sent something on the older one of the watches that must be readable; 0 for never."""
        return min(self.pods.as_of or 0.0, self.owners.as_of or 0.0)

    @property
    def trouble(self) -> str:
        """Why one of the watches that must be readable is not; empty if both are, or have not been answered yet."""
        return self.pod_watch.trouble or self.owner_watch.trouble

    async def catch_up(self) -> None:
        """Read what arrived while the watches rested, so that the caches include it."""
        for one in (self._pod_rest, self._owner_rest):
            await one.end()

    def report(self, pods: Iterable[Pod]) -> None:
        """Queue pods as changed."""
        for pod in pods:
            self._pod_changed(pod, False)

    def stop(self) -> None:
        for one in self._following:
            one.cancel()
        for ends in self._ends.values():
            ends.forget(self.namespace)

    # -- watching

    def _watch(self) -> None:
        path = f"api/v1/namespaces/{self.namespace}" if self.namespace else "api/v1"
        ours = {"labelSelector": labels.OURS}
        self.pod_watch: Reflector[AttemptRef, Pod] = Reflector(
            self._api, f"{path}/pods", wanted=ours, read=read_pod, picture=self.pods,
            key=self._pod_key, changed=self._listed, fact_changed=self._pod_changed, parse=read_event, clock=self._clock,
            rest=self._pod_rest.take, lasting=self._lasting("pods"), denied=self._denied,
        )  # fmt: skip
        self.owner_watch: Reflector[AttemptRef, Owner] = Reflector(
            self._api, f"{path}/services", wanted=ours, read=read_owner, picture=self.owners,
            key=self._key, changed=self._changed, parse=read_event, clock=self._clock,
            rest=self._owner_rest.take, lasting=self._lasting("services"), denied=self._denied,
        )  # fmt: skip
        trouble_watch: Reflector[AttemptRef, PodTrouble] = Reflector(
            self._api, f"{path}/events", wanted=WANTED, read=read_trouble, picture=self.troubles,
            key=self._key, changed=self._changed, clock=self._clock, is_optional=True, lasting=self._lasting("events"),
            has_bookmarks=False,  # Events are not in the API server's cache, which sends them
        )  # fmt: skip
        watches = (self.pod_watch, self.owner_watch, trouble_watch)
        self._following = [client.start(one.follow()) for one in watches]

    def _lasting(self, kind: str) -> Callable[[float], int]:
        ends = self._ends[kind]
        return lambda least: ends.seconds(self.namespace, least, now=self._clock())

    def _rest_seconds(self) -> float:
        return WRITER_REST_SECONDS if self._queue.is_asked else VISITOR_REST_SECONDS

    def _pod_key(self, pod: Pod) -> AttemptRef:
        return AttemptRef(pod.place.run, pod.place.attempt, self.namespace or pod.namespace)

    def _key(self, fact: Owner | PodTrouble) -> AttemptRef:
        return AttemptRef(fact.run, fact.attempt, self.namespace or fact.namespace)

    def _changed(self, ref: AttemptRef) -> None:
        if self._is_used(ref.namespace):
            self._queue.run(ref.run)

    def _listed(self, ref: AttemptRef) -> None:
        """Queue an attempt's changes after a whole list was read: any pod of it may be new."""
        self.report(self.pods.of(ref))
        self._changed(ref)

    def _pod_changed(self, pod: Pod, is_gone: bool) -> None:
        ref = self._pod_key(pod)
        if self._is_used(ref.namespace):
            self._queue.pod(ref, pod, is_gone=is_gone)


@dataclass
class Watched:
    """A namespace in use, and what watches it at present."""

    namespace: str
    scope: Scope


class Scopes:
    """The watches of the namespaces that one process uses."""

    def __init__(self, api: Api, *, queue: ChangeQueue, clock: Callable[[], float]):
        self._api = api
        self._lock = threading.Lock()
        self._made = partial(Scope, api, queue=queue, clock=clock, is_used=self._is_used)
        self._ends = defaultdict[str, WatchEnds](WatchEnds)  # by kind of object
        self._used: dict[str, Watched] = {}  # by namespace
        self._all: Scope | None = None
        self._widening: Future[None] | None = None

    def begin(self, namespace: str) -> Watched:
        """Watch a namespace from now on."""
        with self._lock:
            self._used[namespace] = watched = Watched(namespace, self._all or self._made(namespace, ends=self._ends))
            if len(self._used) > MANY_NAMESPACES and self._widening is None:
                self._widening = client.start(self._widen())
        return watched

    def end(self, namespace: str) -> None:
        with self._lock:
            scope = self._used.pop(namespace).scope
            if scope is not self._all:
                scope.stop()

    def stop(self) -> None:
        with self._lock:
            if self._widening is not None:
                self._widening.cancel()
            for scope in {id(one.scope): one.scope for one in self._used.values()}.values():
                scope.stop()
            self._used, self._all = {}, None

    def _is_used(self, namespace: str) -> bool:
        return namespace in self._used

    # -- all namespaces at once

    async def _widen(self) -> None:
        """Watch all namespaces at once as soon as the account may, and keep to that until it may not any more."""
        while True:
            if await self._may():
                over = asyncio.Event()
                whole = self._made("", ends=defaultdict(WatchEnds), denied=over.set)
                try:
                    await self._fill(whole, over)
                    if not over.is_set():
                        self._replace_by(whole)
                        await over.wait()
                finally:
                    self._give_up(whole)
            await asyncio.sleep(DENIED_SECONDS)

    async def _may(self) -> bool:
        try:
            answers = await asyncio.gather(*(reviews.may(self._api, *one) for one in NEEDED))
        except Unreachable:
            return False
        return all(answers)

    async def _fill(self, whole: Scope, over: asyncio.Event) -> None:
        while not whole.as_of and not over.is_set():
            await asyncio.sleep(FILLED_SECONDS)

    def _replace_by(self, whole: Scope) -> None:
        with self._lock:
            self._all = whole
            for one in self._used.values():
                one.scope.stop()
                one.scope = whole
        log.info("all namespaces are watched at once")

    def _give_up(self, whole: Scope) -> None:
        with self._lock:
            if self._all is whole:
                self._all = None
                for one in self._used.values():
                    one.scope = self._made(one.namespace, ends=self._ends)
                log.info("namespaces are watched one by one again")
        whole.stop()
