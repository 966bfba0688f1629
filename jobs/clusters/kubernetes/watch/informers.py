"""One process's view of a cluster: caches, the watches that keep them current, and the queue of changes.

Pods, Services and Events are watched by namespace, from its first use on: attempts of an earlier setting stay where they
were made. Nothing here requests more than the watches deliver, so observing what runs adds no load on the server.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from jobs.core.attempt_ref import AttemptRef
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
# Until a namespace that nothing asks for is not watched any more: longer than the tombstones of its last attempts are kept.
UNUSED_SECONDS = 2 * 3600.0


class ClusterView:
    """The cached view of one cluster. `clock` gives seconds since the epoch."""

    def __init__(self, api: Api, site: Site, *, clock: Callable[[], float]):
        self.api, self.site, self._clock = api, site, clock
        self.queue = ChangeQueue()
        self._lock = threading.Lock()
        self._watching_pid = 0
        self._views: dict[str, NamespaceView] = {}
        self._draw_nodes_anew()

    def view(self, namespace: str = "") -> "NamespaceView":
        """Return the view of a namespace, which is watched in the background from now on; empty: the cluster's own."""
        name = namespace or self.site.namespace
        with self._lock:
            self._begin_in_this_process()
            if name not in self._views:
                self._views[name] = NamespaceView(self.api, name, queue=self.queue, nodes=self.nodes, clock=self._clock)
            view, now = self._views[name], self._clock()
            view.used_at = now
            for other in [one for one in self._views.values() if now > one.used_at + UNUSED_SECONDS]:
                if other.namespace != self.site.namespace:
                    self._views.pop(other.namespace).stop()
        return view

    def views(self) -> list["NamespaceView"]:
        """Return the views of this process that exist: none before the first use."""
        with self._lock:
            return list(self._views.values()) if self._watching_pid == os.getpid() else []

    def stop_watching(self) -> None:
        views = self.views()
        for view in views:
            view.stop()
        if views:
            self._following_nodes.cancel()

    def _begin_in_this_process(self) -> None:
        """Begin anew after a fork: the parent's watches are not ours."""
        if self._watching_pid == os.getpid():
            return
        self._watching_pid, self._views = os.getpid(), {}
        self._draw_nodes_anew()
        self._following_nodes = client.start(self.node_watch.follow())

    def _draw_nodes_anew(self) -> None:
        lost_seconds = float(self.site.node_lost_seconds)
        self.nodes = Nodes(lost_seconds=lost_seconds, fresh_seconds=FRESH_SECONDS, clock=self._clock)
        self.node_watch: Reflector[Node] = Reflector(
            self.api, "api/v1/nodes", wanted={}, read=read_node, picture=self.nodes.picture,
            key=node_key, changed=self.nodes.changed, parse=read_event, clock=self._clock, is_optional=True,
        )  # fmt: skip


class NamespaceView:
    """The cached view of one namespace, watched from its creation until `stop`; of all attempts, only those made here."""

    def __init__(self, api: Api, namespace: str, *, queue: ChangeQueue, nodes: Nodes, clock: Callable[[], float]):
        self.api, self.namespace, self.queue, self.nodes, self._clock = api, namespace, queue, nodes, clock
        self.path = f"api/v1/namespaces/{namespace}"
        self.began_at = self.used_at = clock()
        self.pods: Picture[Pod] = Picture(pod_key, clock=clock)
        self.owners: Picture[Owner] = Picture(owner_key, clock=clock)
        self.troubles: Picture[PodTrouble] = Picture(_trouble_key, clock=clock)
        self._pod_rest, self._owner_rest = Rest(self._rest_seconds), Rest(self._rest_seconds)
        self._watch()

    # -- cached state

    @property
    def as_of(self) -> float:
        """When the API server last sent something on the older one of the watches that must be readable; 0 for never."""
        return min(self.pods.as_of or 0.0, self.owners.as_of or 0.0)

    def known(self, ref: AttemptRef) -> tuple[AttemptObjects, float] | None:
        """Return the attempt from the watch's cache and the cache's time; None if it is too old to use."""
        # read before the facts: never newer than they are
        at, both_at = self.pods.as_of or 0.0, self.as_of
        if both_at < self._clock() - FRESH_SECONDS:
            return None
        found = self.with_reports(self.drawn(ref))
        return found, at if found.has_live_owner else both_at

    def drawn(self, ref: AttemptRef) -> AttemptObjects:
        """Return the attempt from the cache, however old that is."""
        key = (ref.run, ref.number)
        return AttemptObjects(
            self.ref(key), next(iter(self.owners.of(key)), None), self.pods.of(key), self.pods.gone(key)
        )  # fmt: skip

    def attempts(self) -> list[AttemptObjects]:
        """Return every attempt of which anything is cached."""
        keys = {owner_key(one) for one in self.owners.everything()} | {pod_key(one) for one in self.pods.everything()}
        return [self.drawn(self.ref(key)) for key in sorted(keys)]

    def updates(self, ref: AttemptRef, pods: tuple[Pod, ...]) -> list[ReplicaUpdate]:
        """Return updates of the pods that belong to us, as a visit would observe them."""
        owner = next(iter(self.owners.of((ref.run, ref.number))), None)
        found = self.with_reports(AttemptObjects(ref, owner, pods))
        places = [(pod.place.role, pod.place.index) for pod in found.ours]
        return [ReplicaUpdate(ref.run, ref.number, seen) for seen in found.replicas(places)]

    def with_reports(self, attempt: AttemptObjects) -> AttemptObjects:
        """Add what Events and nodes report; both may be forbidden to us, and are then empty."""
        troubles = self.troubles.of((attempt.ref.run, attempt.ref.number))
        return replace(attempt, troubles=troubles, lost=self.nodes.lost(attempt.nodes))

    def ref(self, key: Key) -> AttemptRef:
        return AttemptRef(*key, self.namespace)

    async def catch_up(self) -> None:
        """Read what arrived while the watches rested, so that the caches include it."""
        for one in (self._pod_rest, self._owner_rest):
            await one.end()

    # -- watching

    def queue_all(self) -> None:
        """Queue all pods as changed, for a reader that was not there before."""
        for pod in self.pods.everything():
            self._pod_changed(pod, False)

    def stop(self) -> None:
        for one in self._following:
            one.cancel()

    def _watch(self) -> None:
        ours = {"labelSelector": labels.OURS}
        self.pod_watch: Reflector[Pod] = Reflector(
            self.api, f"{self.path}/pods", wanted=ours, read=read_pod, picture=self.pods,
            key=pod_key, changed=self._listed, fact_changed=self._pod_changed, parse=read_event, clock=self._clock, rest=self._pod_rest.take,
        )  # fmt: skip
        self.owner_watch: Reflector[Owner] = Reflector(
            self.api, f"{self.path}/services", wanted=ours, read=read_owner, picture=self.owners,
            key=owner_key, changed=self._changed, parse=read_event, clock=self._clock, rest=self._owner_rest.take,
        )  # fmt: skip
        trouble_watch: Reflector[PodTrouble] = Reflector(
            self.api, f"{self.path}/events", wanted=WANTED, read=read_trouble, picture=self.troubles,
            key=_trouble_key, changed=self._changed, clock=self._clock, is_optional=True,
        )  # fmt: skip
        watches = (self.pod_watch, self.owner_watch, trouble_watch)
        self._following: list[Future[None]] = [client.start(one.follow()) for one in watches]

    def _rest_seconds(self) -> float:
        return WRITER_REST_SECONDS if self.queue.is_asked else VISITOR_REST_SECONDS

    def _changed(self, key: Key) -> None:
        self.queue.run(key[0])

    def _listed(self, key: Key) -> None:
        """Queue an attempt's changes after a whole list was read: any pod of it may be new."""
        for pod in self.pods.of(key):
            self._pod_changed(pod, False)
        self.queue.run(key[0])

    def _pod_changed(self, pod: Pod, is_gone: bool) -> None:
        self.queue.pod(self.ref(pod_key(pod)), pod, is_gone=is_gone)


def pod_key(pod: Pod) -> Key:
    return pod.place.run, pod.place.attempt


def owner_key(owner: Owner) -> Key:
    return owner.run, owner.attempt


def _trouble_key(trouble: PodTrouble) -> Key:
    return trouble.run, trouble.attempt
