"""Replicas as pods. Postgres holds the desired state, the API server the actual one; this side only caches it.

A positive observation is taken from the watch. A negative one (nothing of the attempt is alive) is confirmed with the
API server, because quota and verdicts depend on it, and because it is rare.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from common import faultpoints
from common.errors import Unreachable
from jobs.clusters import Checked, Expected, Placement
from jobs.core.plan import Plan, Role
from jobs.core.verdict import ReplicaUpdate, Seen
from queues.shape import ReplicaShape

from . import meshes, pod_logs
from .api import client
from .api.answers import need
from .api.client import CALL_SECONDS, Api
from .build import labels, manifests
from .build.options import read as read_options
from .facts import sizes
from .facts.pods import AttemptObjects, Owner, read_owner, read_pod
from .facts.sizes import Size, read_size
from .launch import LAUNCH_SECONDS, AttemptLauncher
from .teardown import END_SECONDS, end, end_replicas
from .watch.cache import Key
from .watch.informers import FRESH_SECONDS, View, owner_key, pod_key
from .watch.nodes import read_node

AGENT = Path(__file__).resolve().parents[3] / "agent" / "agent.pyz"
START = AGENT.with_name("pod_entry.py")
# A visit observes once and then launches or ends once: together shorter than a lease can be renewed
# (control/lease_renewal.py).
LOOK_SECONDS, LAST_SECONDS = 11.0, 5.0
TOMBSTONE_SECONDS = 3600.0  # no call begun before an attempt was closed is still in flight after that
TIDY_SECONDS = 300.0
SIZES_SECONDS, SIZES_CALL_SECONDS = 60.0, 2.0  # a submission waits for it, at most once a minute
IDLE_SECONDS = 1.0
ASKED_SECONDS = 10.0  # until pods that were deleted, but do not show it, are deleted again
VISIT_SECONDS = 2.0  # how long an observation may be reused by the deletion in the same visit


class DeletionRequest(NamedTuple):
    """When deletion of an attempt's pods was requested: before the call and after it, in seconds since the epoch."""

    began: float
    answered: float
    is_now: bool = False  # without the grace period


class KubernetesCluster(View):
    """The Kubernetes adapter. OPTIONS are described in docs/kubernetes.md."""

    MOUNTS = HAS_LOGS = HAS_NODES = SEPARATES = FINDS_BY_NAME = MAKES_PODS = True
    OPERATORS = frozenset({meshes.KIND})

    def __init__(self, *, agent: Path = AGENT, clock: Callable[[], float] = time.time, **options: Any):
        access, site = read_options(options)
        super().__init__(Api(access), site, clock=clock)
        self.control_url, self.namespace = site.control_url, site.namespace
        self._agent_file = agent
        self.launcher: AttemptLauncher | None = None
        self._asked: dict[Key, DeletionRequest] = {}
        self._looked: tuple[AttemptObjects, float] | None = None
        self._sizes: tuple[Size, ...] = ()
        self._sized_at, self._sizing = 0.0, threading.Lock()

    # -- the port

    def apply(self, plan: Plan) -> str:
        self.start_watching()
        return client.run(self._launch(plan), LAUNCH_SECONDS + LAST_SECONDS)

    def observe(self, run: str, attempt: int, expected: Expected) -> Seen:
        self.start_watching()
        client.run(self._catch_up(), CALL_SECONDS)
        known = self.known(run, attempt)
        if known is None or not (known[0].is_any_alive or self._shows_deletion(known)):
            known = client.run(self._look(run, attempt), LOOK_SECONDS)
        found, at = known
        return Seen(
            found.replicas(expected), as_of=datetime.fromtimestamp(at, UTC),
            is_sealed=found.is_sealed and not found.is_any_alive,
        )  # fmt: skip

    def delete(self, run: str, attempt: int, grace_seconds: int, *, is_now: bool = False) -> None:
        self.start_watching()
        client.run(self._end(run, attempt, grace_seconds, is_now=is_now), END_SECONDS + LAST_SECONDS)

    def end_replicas(self, run: str, attempt: int, places: Expected, grace_seconds: int) -> None:
        self.start_watching()
        client.run(self._end_replicas(run, attempt, places, grace_seconds), END_SECONDS + LAST_SECONDS)

    def read_log(
        self, run: str, attempt: int, place: tuple[str, int, int], since: float | None, take: Callable[[bytes], bool]
    ) -> bool:
        pod = next((one for one in self.pods.of((run, attempt)) if one.spot == place), None)
        path = f"{self.path}/pods/{pod.name if pod else labels.pod(run, attempt, *place)}/log"
        reading = pod_logs.read(
            self.api, path, since=since, take=take, is_restarted=pod is not None and pod.is_restarted
        )
        return client.run(reading, pod_logs.READ_SECONDS + LAST_SECONDS)

    def placement(self, roles: Sequence[Role], *, resource: str, node_slots: int) -> Placement:
        return sizes.placement(
            roles, resource=resource, node_slots=node_slots, site=self.site, nodes=self._known_sizes()
        )

    def check(self, plan: Plan) -> Checked:
        return client.run(self._check(plan), CALL_SECONDS)

    @property
    def shape(self) -> ReplicaShape:
        return self.site.shape

    def open_attempts(self) -> list[tuple[str, int]]:
        self.start_watching()
        client.run(self._catch_up(), CALL_SECONDS)
        if min(self.pods.as_of or 0.0, self.owners.as_of or 0.0) < self._clock() - FRESH_SECONDS:
            raise Unreachable("the watch has been silent for too long")
        keys = {owner_key(one) for one in self.owners.everything()} | {pod_key(one) for one in self.pods.everything()}
        pictures = (self._drawn(run, attempt) for run, attempt in sorted(keys))
        return [(one.run, one.number) for one in pictures if one.has_live_owner or one.is_any_alive]

    def changes(self) -> Iterator[str]:
        self.queue.is_asked_for_runs = True
        self.start_watching()
        tidied = self._clock()
        while True:
            yield from self.queue.take_runs(IDLE_SECONDS)
            yield ""
            if self._clock() > tidied + TIDY_SECONDS:
                tidied = self._clock()
                self.tidy()

    def replica_updates(self) -> Iterator[list[ReplicaUpdate]]:
        """Yield replica changes for the writer of rows; `changes` then omits runs that need no visit."""
        self.queue.is_asked_for_pods = True
        self.start_watching()
        for pod in self.pods.everything():  # cached before this reader existed
            self.queue.pod(pod_key(pod), pod)
        while True:
            taken = self.queue.take_pods(IDLE_SECONDS)
            yield [one for key, pods in taken.items() for one in self._updates(key, tuple(pods.values()))]

    def tidy(self) -> int:
        """Remove tombstones that are older than every call they guard against. Return how many."""
        limit = (datetime.fromtimestamp(self._clock(), UTC) - timedelta(seconds=TOMBSTONE_SECONDS)).isoformat()
        old = [one for one in self.owners.everything() if one.is_sealed and one.created_at[:19] < limit[:19]]
        for one in old:
            body = {"preconditions": {"uid": one.uid}}
            with faultpoints.around("kube.tidy"):
                client.run(self.api.call("DELETE", f"{self.path}/services/{one.name}", body=body), CALL_SECONDS)
        return len(old)

    def watch_ages(self) -> dict[str, float]:
        """Return how many seconds ago the API server last sent something, for each resource that is watched.

        Before it sent anything, the age counts from the start of the watch: it may be away from the beginning.
        """
        if self._watching_pid != os.getpid():
            return {}
        seen = {"pods": self.pods.as_of, "services": self.owners.as_of}
        now, since = self._clock(), self._watching_since
        return {name: max(0.0, now - (since if at is None else at)) for name, at in seen.items()}

    def close(self) -> None:
        """Stop watching. Not needed in a process that exits."""
        for one in self._following:
            one.cancel()
        client.run(self.api.close(), CALL_SECONDS)

    # -- looking

    def _known_sizes(self) -> tuple[Size, ...]:
        """Return the sizes of the nodes, at most a minute old; empty if nodes cannot be read."""
        with self._sizing:
            if self._clock() > self._sized_at + SIZES_SECONDS:
                self._sized_at = self._clock()
                try:
                    self._sizes = client.run(self._ask_sizes(), SIZES_CALL_SECONDS + IDLE_SECONDS)
                except Unreachable:
                    self._sizes = ()
            return self._sizes

    async def _ask_sizes(self) -> tuple[Size, ...]:
        fresh_enough = {"resourceVersion": "0"}  # served from the API server's cache
        answer = await self.api.call("GET", "api/v1/nodes", params=fresh_enough, seconds=SIZES_CALL_SECONDS)
        return tuple(read_size(one) for one in answer.body.get("items") or ()) if answer.is_good else ()

    async def _look(self, run: str, attempt: int) -> tuple[AttemptObjects, float]:
        """Return the attempt as the server has it now, and when it was requested."""
        at = self._clock()
        known = self.known(run, attempt)
        # A cached owner exists, or was just deleted with its pods: either way the pods are listed.
        owner = (known[0].owner if known else None) or await self._owner(run, attempt)
        if owner is None and known is not None:  # never begun: nothing to list
            return AttemptObjects(run, attempt, None, known[0].pods, known[0].gone), known[1]
        wanted = {"labelSelector": labels.selector(labels.of_attempt(run, attempt))}
        with faultpoints.around("kube.look"):
            answer = await self.api.call("GET", f"{self.path}/pods", params=wanted)
        body = need(answer, "the pods of the attempt")
        pods = tuple(pod for one in body.get("items") or [] if (pod := read_pod(one)) is not None)
        self._looked = self._with_reports(AttemptObjects(run, attempt, owner, pods, self.pods.gone((run, attempt)))), at
        return self._looked

    async def _owner(self, run: str, attempt: int) -> Owner | None:
        name = labels.service(run, attempt)
        with faultpoints.around("kube.look"):
            answer = await self.api.call("GET", f"{self.path}/services/{name}")
        return None if answer.status == 404 else read_owner(need(answer, f"Service {name}"))

    async def _end(self, run: str, attempt: int, grace_seconds: int, *, is_now: bool = False) -> None:
        known = self.known(run, attempt)
        if known is None or not known[0].has_live_owner or not (known[0].is_any_alive or self._shows_deletion(known)):
            known = self._just_seen(run, attempt) or await self._look(run, attempt)
        found = replace(known[0], lost=await self._confirmed(known[0].lost))
        self._looked = None
        began = self._clock()
        asked = self._asked.get((run, attempt))
        is_recent = asked is not None and began < asked.answered + ASKED_SECONDS
        is_asked = is_recent and asked is not None and asked.is_now >= is_now
        tombstone = await end(
            found, api=self.api, path=self.path, grace_seconds=grace_seconds, is_asked=is_asked, is_now=is_now
        )  # fmt: skip
        if not is_asked and found.is_any_alive:
            now = self._clock()
            kept = {key: one for key, one in self._asked.items() if now < one.answered + TOMBSTONE_SECONDS}
            self._asked = {**kept, (run, attempt): DeletionRequest(began, now, is_now)}
        if tombstone is not None:
            self.owners.put(tombstone)

    def _shows_deletion(self, known: tuple[AttemptObjects, float]) -> bool:
        """True if we deleted every pod of this attempt and the cached view is newer than that request.

        Then an empty view can be trusted. Pods it may miss were created since and belong to an owner that is about to
        be deleted; they are looked up once the name is closed.
        """
        found, at = known
        asked = self._asked.get((found.run, found.number))
        return found.has_live_owner and asked is not None and at > asked.began

    def _just_seen(self, run: str, attempt: int) -> tuple[AttemptObjects, float] | None:
        """Return the observation that the same visit began with, or None.

        It may be reused: pods created since belong to an owner that is about to be deleted.
        """
        found = self._looked
        is_it = found is not None and (found[0].run, found[0].number) == (run, attempt)
        return found if found and is_it and found[1] > self._clock() - VISIT_SECONDS else None

    async def _end_replicas(self, run: str, attempt: int, places: Expected, grace_seconds: int) -> None:
        known = self.known(run, attempt) or await self._look(run, attempt)
        found = replace(known[0], lost=await self._confirmed(known[0].lost))
        await end_replicas(found, places, api=self.api, path=self.path, grace_seconds=grace_seconds)

    async def _confirmed(self, lost: Mapping[str, str]) -> Mapping[str, str]:
        answers = await asyncio.gather(*(self._is_lost(name) for name in lost))
        return {name: lost[name] for name, is_lost in zip(lost, answers, strict=True) if is_lost}

    async def _is_lost(self, node: str) -> bool:
        """Ask the API server itself whether a node is lost: what follows cannot be undone."""
        with faultpoints.around("kube.node"):
            answer = await self.api.call("GET", f"api/v1/nodes/{node}")
        if answer.status == 404:
            return True
        there = read_node(answer.body) if answer.is_good else None
        return there is not None and bool(there.silence)

    # -- creating

    async def _launch(self, plan: Plan) -> str:
        launcher = self._launching()
        await self._need_alone(plan)
        return await launcher.launch(plan)

    async def _check(self, plan: Plan) -> Checked:
        return await self._launching().check(plan)

    async def _need_alone(self, plan: Plan) -> None:
        """Raise Unreachable, and end them, if earlier attempts of the run are alive.

        They were closed before this one was begun, but a cluster restored to an older state has them back.
        """
        earlier = (self._drawn(plan.run, number) for number in range(1, plan.attempt))
        for number in [one.number for one in earlier if one.is_any_alive]:
            found, _ = await self._look(plan.run, number)
            if found.is_any_alive:
                await self._end(plan.run, number, plan.grace_seconds)
                raise Unreachable(f"attempt {number} of {plan.run} lives again; it is ended first")

    def _launching(self) -> AttemptLauncher:
        with self._lock:
            if self.launcher is None:
                try:
                    agent = manifests.agent_config(self._agent_file.read_bytes(), START.read_bytes())
                except OSError as error:
                    raise Unreachable(f"the agent is missing: {error}; build it with python -m agent.build") from error
                self.launcher = AttemptLauncher(self.api, self.site, agent, self._created)
            return self.launcher

    def _created(self, thing: Any) -> None:
        """Cache a pod we created ourselves at once, without waiting for the watch."""
        pod = read_pod(thing)
        if pod is not None:
            self.pods.put(pod)
