"""One process's view of a cluster: caches, the watches that keep them current, and the queue of changes.

Pods, Services and Events are watched in the namespaces in use, from their first use on (scopes.py): attempts of an
earlier setting stay where they were made. Nothing here requests more than the watches deliver, so observing what runs
adds no load on the server.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import replace

from jobs.core.attempt_ref import AttemptRef
from jobs.core.verdict import ReplicaUpdate

from ..api import client
from ..api.client import Api
from ..api.decode import read_event
from ..build.site import Site
from ..facts.events import PodTrouble
from ..facts.pods import AttemptObjects, Owner, Pod
from .cache import Picture
from .change_queue import ChangeQueue
from .nodes import Node, Nodes, node_key, read_node
from .reflector import BOOKMARK_SECONDS, LATE_SECONDS, WATCH_SECONDS, Reflector
from .scopes import Scope, Scopes, Watched

FRESH_SECONDS = 2.5 * WATCH_SECONDS  # an older cached view is not used; the server is asked
# An older view may lack what exists: its watch is broken, or denied. Of many namespaces each is confirmed once a minute.
BROKEN_SECONDS = BOOKMARK_SECONDS + 2 * LATE_SECONDS
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
        self._draw_anew()

    def view(self, namespace: str = "") -> "NamespaceView":
        """Return the view of a namespace, which is watched in the background from now on; empty: the cluster's own."""
        name = namespace or self.site.namespace
        with self._lock:
            self._begin_in_this_process()
            if name not in self._views:
                watched = self._scopes.begin(name)
                self._views[name] = NamespaceView(watched, nodes=self.nodes, clock=self._clock)
                self._views[name].queue_all()  # cached already where all namespaces are watched
            view, now = self._views[name], self._clock()
            view.used_at = now
            for other in [one for one in self._views.values() if now > one.used_at + UNUSED_SECONDS]:
                if other.namespace != self.site.namespace:
                    del self._views[other.namespace]
                    self._scopes.end(other.namespace)
        return view

    def views(self) -> list["NamespaceView"]:
        """Return the views of this process that exist: none before the first use."""
        with self._lock:
            return list(self._views.values()) if self._watching_pid == os.getpid() else []

    def stop_watching(self) -> None:
        if self.views():
            self._scopes.stop()
            self._following_nodes.cancel()

    def _begin_in_this_process(self) -> None:
        """Begin anew after a fork: the parent's watches are not ours."""
        if self._watching_pid == os.getpid():
            return
        self._watching_pid, self._views = os.getpid(), {}
        self._draw_anew()
        self._following_nodes = client.start(self.node_watch.follow())

    def _draw_anew(self) -> None:
        self._scopes = Scopes(self.api, queue=self.queue, clock=self._clock)
        lost_seconds = float(self.site.node_lost_seconds)
        self.nodes = Nodes(lost_seconds=lost_seconds, fresh_seconds=FRESH_SECONDS, clock=self._clock)
        self.node_watch: Reflector[str, Node] = Reflector(
            self.api, "api/v1/nodes", wanted={}, read=read_node, picture=self.nodes.picture,
            key=node_key, changed=self.nodes.changed, parse=read_event, clock=self._clock, is_optional=True,
        )  # fmt: skip


class NamespaceView:
    """What is cached of one namespace, watched from its creation until it is dropped; of all attempts, only those made here."""

    def __init__(self, watched: Watched, *, nodes: Nodes, clock: Callable[[], float]):
        self.namespace, self.nodes, self._watched, self._clock = watched.namespace, nodes, watched, clock
        self.path = f"api/v1/namespaces/{self.namespace}"
        self.began_at = self.used_at = clock()

    # -- cached state

    @property
    def scope(self) -> Scope:
        return self._watched.scope

    @property
    def pods(self) -> Picture[AttemptRef, Pod]:
        return self.scope.pods

    @property
    def owners(self) -> Picture[AttemptRef, Owner]:
        return self.scope.owners

    @property
    def troubles(self) -> Picture[AttemptRef, PodTrouble]:
        return self.scope.troubles

    @property
    def as_of(self) -> float:
        """When the API server last sent something on the older one of the watches that must be readable; 0 for never."""
        return self.scope.as_of

    @property
    def trouble(self) -> str:
        """Why the namespace cannot be watched; empty if it is, or if the API server has not answered yet."""
        return self.scope.trouble

    def known(self, ref: AttemptRef) -> tuple[AttemptObjects, float] | None:
        """Return the attempt from the watch's cache and the cache's time; None if it is too old to use."""
        # read before the facts: never newer than they are
        scope = self.scope
        at, both_at = scope.pods.as_of or 0.0, scope.as_of
        if both_at < self._clock() - FRESH_SECONDS:
            return None
        found = self.with_reports(self._drawn(scope, ref))
        return found, at if found.has_live_owner else both_at

    def drawn(self, ref: AttemptRef) -> AttemptObjects:
        """Return the attempt from the cache, however old that is."""
        return self._drawn(self.scope, ref)

    def attempts(self) -> list[AttemptObjects]:
        """Return every attempt of which anything is cached."""
        scope = self.scope
        keys = {*scope.owners.all_keys(), *scope.pods.all_keys()}
        return [self._drawn(scope, key) for key in sorted(keys) if key.namespace == self.namespace]

    def every_owner(self) -> list[Owner]:
        """Return the Services of all attempts, also the tombstones of closed ones."""
        owners = self.owners
        return [one for key in owners.all_keys() if key.namespace == self.namespace for one in owners.of(key)]

    def updates(self, ref: AttemptRef, pods: tuple[Pod, ...]) -> list[ReplicaUpdate]:
        """Return updates of the pods that belong to us, as a visit would observe them."""
        owner = next(iter(self.owners.of(self._here(ref))), None)
        found = self.with_reports(AttemptObjects(ref, owner, pods))
        places = [(pod.place.role, pod.place.index) for pod in found.ours]
        return [ReplicaUpdate(ref.run, ref.number, seen, self.namespace) for seen in found.replicas(places)]

    def with_reports(self, attempt: AttemptObjects) -> AttemptObjects:
        """Add what Events and nodes report; both may be forbidden to us, and are then empty."""
        troubles = self.troubles.of(self._here(attempt.ref))
        return replace(attempt, troubles=troubles, lost=self.nodes.lost(attempt.nodes))

    async def catch_up(self) -> None:
        """Read what arrived while the watches rested, so that the caches include it."""
        await self.scope.catch_up()

    def queue_all(self) -> None:
        """Queue all pods as changed, for a reader that was not there before."""
        scope = self.scope
        for key in scope.pods.all_keys():
            if key.namespace == self.namespace:
                scope.report(scope.pods.of(key))

    def _drawn(self, scope: Scope, ref: AttemptRef) -> AttemptObjects:
        key = self._here(ref)
        return AttemptObjects(key, next(iter(scope.owners.of(key)), None), scope.pods.of(key), scope.pods.gone(key))

    def _here(self, ref: AttemptRef) -> AttemptRef:
        return AttemptRef(ref.run, ref.number, self.namespace)
