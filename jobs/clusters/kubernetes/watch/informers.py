"""One process's view of a cluster: caches, the watches that keep them current, and the queue of changes.

Nothing here requests more than the watches deliver, so observing what runs adds no load on the server.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from jobs.core.verdict import ReplicaUpdate

from ..api import client
from ..api.client import Api
from ..api.decode import read_event
from ..api.watch_batching import Rest
from ..build import labels
from ..build.site import Site
from ..facts.events import WANTED, PodTrouble, read_trouble
from ..facts.pods import AttemptObjects, Owner, Pod, read_owner, read_pod
from .cache import Key, Picture
from .change_queue import ChangeQueue
from .nodes import Node, Nodes, node_key, read_node
from .reflector import WATCH_SECONDS, Reflector

WRITER_REST_SECONDS = 0.08  # with a writer of rows, which must be quick
VISITOR_REST_SECONDS = 1.0  # without such a writer; a visit ends the rest early
FRESH_SECONDS = 2.5 * WATCH_SECONDS  # an older cached view is not used; the server is asked


class View:
    """The cached view of one cluster. `clock` gives seconds since the epoch."""

    def __init__(self, api: Api, site: Site, *, clock: Callable[[], float]):
        self.api, self.site, self._clock = api, site, clock
        self.path = f"api/v1/namespaces/{site.namespace}"
        self._lock = threading.Lock()
        self.queue = ChangeQueue()
        self._watching_pid = 0
        self._watching_since = 0.0
        self._following: list[Future[None]] = []
        self._draw_anew()

    # -- cached state

    def known(self, run: str, attempt: int) -> tuple[AttemptObjects, float] | None:
        """Return the attempt from the watch's cache and the cache's time; None if it is too old to use."""
        # read before the facts: never newer than they are
        at, owners_at = self.pods.as_of or 0.0, self.owners.as_of or 0.0
        if min(at, owners_at) < self._clock() - FRESH_SECONDS:
            return None
        found = self._with_reports(self._drawn(run, attempt))
        return found, at if found.has_live_owner else min(at, owners_at)

    def _drawn(self, run: str, attempt: int) -> AttemptObjects:
        key = (run, attempt)
        return AttemptObjects(
            run, attempt, next(iter(self.owners.of(key)), None), self.pods.of(key), self.pods.gone(key)
        )

    def _updates(self, key: Key, pods: tuple[Pod, ...]) -> list[ReplicaUpdate]:
        """Return updates of the pods that belong to us, as a visit would observe them."""
        found = self._with_reports(AttemptObjects(*key, next(iter(self.owners.of(key)), None), pods))
        places = [(pod.place.role, pod.place.index) for pod in found.ours]
        return [ReplicaUpdate(*key, seen) for seen in found.replicas(places)]

    def _with_reports(self, attempt: AttemptObjects) -> AttemptObjects:
        """Add what Events and nodes report; both may be forbidden to us, and are then empty."""
        troubles = self.troubles.of((attempt.run, attempt.number))
        return replace(attempt, troubles=troubles, lost=self.nodes.lost(attempt.nodes))

    async def _catch_up(self) -> None:
        """Read what arrived while the watches rested, so that the caches include it."""
        for one in (self._pod_rest, self._owner_rest):
            await one.end()

    # -- watching

    def _rest_seconds(self) -> float:
        return WRITER_REST_SECONDS if self.queue.is_asked else VISITOR_REST_SECONDS

    def start_watching(self) -> None:
        """Follow pods and Services in the background of this process; started once, and again after a fork."""
        with self._lock:
            if self._watching_pid == os.getpid():
                return
            self._watching_since, self._watching_pid = self._clock(), os.getpid()
            self._draw_anew()
        self._following = [client.start(one.follow()) for one in self._watches]

    def _draw_anew(self) -> None:
        self.pods: Picture[Pod] = Picture(pod_key, clock=self._clock)
        self.owners: Picture[Owner] = Picture(owner_key, clock=self._clock)
        self.troubles: Picture[PodTrouble] = Picture(_trouble_key, clock=self._clock)
        lost_seconds = float(self.site.node_lost_seconds)
        self.nodes = Nodes(lost_seconds=lost_seconds, fresh_seconds=FRESH_SECONDS, clock=self._clock)
        ours = {"labelSelector": labels.OURS}
        self._pod_rest, self._owner_rest = Rest(self._rest_seconds), Rest(self._rest_seconds)
        self.pod_watch: Reflector[Pod] = Reflector(
            self.api, f"{self.path}/pods", wanted=ours, read=read_pod, picture=self.pods,
            key=pod_key, changed=self._listed, fact_changed=self._pod_changed, parse=read_event, clock=self._clock, rest=self._pod_rest.take,
        )  # fmt: skip
        self.owner_watch: Reflector[Owner] = Reflector(
            self.api, f"{self.path}/services", wanted=ours, read=read_owner, picture=self.owners,
            key=owner_key, changed=self._changed, parse=read_event, clock=self._clock, rest=self._owner_rest.take,
        )  # fmt: skip
        self.trouble_watch: Reflector[PodTrouble] = Reflector(
            self.api, f"{self.path}/events", wanted=WANTED, read=read_trouble, picture=self.troubles,
            key=_trouble_key, changed=self._changed, clock=self._clock, is_optional=True,
        )  # fmt: skip
        self.node_watch: Reflector[Node] = Reflector(
            self.api, "api/v1/nodes", wanted={}, read=read_node, picture=self.nodes.picture,
            key=node_key, changed=self.nodes.changed, parse=read_event, clock=self._clock, is_optional=True,
        )  # fmt: skip
        self._watches = (self.pod_watch, self.owner_watch, self.trouble_watch, self.node_watch)

    def _changed(self, key: Key) -> None:
        self.queue.run(key[0])

    def _listed(self, key: Key) -> None:
        """Queue an attempt's changes after a whole list was read: any pod of it may be new."""
        for pod in self.pods.of(key):
            self.queue.pod(key, pod)
        self.queue.run(key[0])

    def _pod_changed(self, pod: Pod, is_gone: bool) -> None:
        self.queue.pod(pod_key(pod), pod, is_gone=is_gone)


def pod_key(pod: Pod) -> Key:
    return pod.place.run, pod.place.attempt


def owner_key(owner: Owner) -> Key:
    return owner.run, owner.attempt


def _trouble_key(trouble: PodTrouble) -> Key:
    return trouble.run, trouble.attempt
