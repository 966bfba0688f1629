"""Replicas as pods. Postgres holds the desired state, the API server the actual one; this side only caches it.

A positive observation is taken from the watch. A negative one (nothing of the attempt is alive) is confirmed with the
API server, because quota and verdicts depend on it, and because it is rare.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from common import faultpoints
from common.errors import NotReadYet, Unreachable
from common.http.public_addresses import Network
from jobs.clusters import Checked, ClusterEvents, Expected, Inspected, Placement
from jobs.core.attempt_ref import AttemptRef
from jobs.core.keeping import Errand, JobFolders, Kept
from jobs.core.node_seen import NodeSeen
from jobs.core.plan import Claim, ClaimSeen, Plan, Role
from jobs.core.probing import Probe
from jobs.core.verdict import ReplicaUpdate, Seen
from queues.shape import ReplicaShape

from . import meshes
from .api import client
from .api.answers import need
from .api.client import CALL_SECONDS, Api
from .build import labels, manifests
from .build.options import read as read_options
from .facts import pod_reasons, sizes
from .facts.pods import AttemptObjects, Owner, read_owner, read_pod
from .facts.sizes import Size, read_size
from .launch import LAUNCH_SECONDS, AttemptLauncher
from .reading import inspection, pod_logs, raw_events
from .reading.probing import Probing
from .storage import claims, keeper, namespaces
from .teardown import END_SECONDS, end, end_replicas
from .watch.informers import BROKEN_SECONDS, ClusterView
from .watch.node_list import NodeList
from .watch.nodes import read_node

AGENT = Path(__file__).resolve().parents[3] / "agent" / "agent.pyz"
START = AGENT.with_name("pod_entry.py")
# A visit observes once and then launches or ends once: together shorter than a lease can be renewed
# (control/lease_renewal.py).
LOOK_SECONDS, LAST_SECONDS = 11.0, 5.0
NODES_SECONDS = 60.0  # a list of nodes, and pages of pods
NAMESPACE_SECONDS = 45.0  # of one, with all that is in it
KEEP_SECONDS = 45.0  # a turn of a keeper, or of a check: a few calls
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


class KubernetesCluster(ClusterView):
    """The Kubernetes adapter. OPTIONS are described in docs/kubernetes.md."""

    MOUNTS = HAS_LOGS = HAS_NODES = SEPARATES = FINDS_BY_NAME = MAKES_PODS = True
    OPERATORS = frozenset({meshes.KIND})

    def __init__(
        self, *, agent: Path = AGENT, clock: Callable[[], float] = time.time,
        kubeconfig: Mapping[str, Any] | None = None, networks: tuple[Network, ...] | None = None, **options: Any,
    ):  # fmt: skip
        """`kubeconfig` and `networks` are of a cluster that was added (`ApiAccess`)."""
        access, site = read_options(options)
        if kubeconfig is not None:
            access = replace(access, content=kubeconfig, networks=networks)
        super().__init__(Api(access), site, clock=clock)
        self.control_url, self.namespace = site.control_url, site.namespace
        self._agent_file = agent
        self.launchers: dict[str, AttemptLauncher] = {}  # by namespace
        self._launching = threading.Lock()
        self._asked: dict[AttemptRef, DeletionRequest] = {}
        self._looked: tuple[AttemptObjects, float] | None = None
        self._sizes: tuple[Size, ...] = ()
        self._sized_at, self._sizing = 0.0, threading.Lock()
        self._nodes = NodeList(self.api, site, clock=clock)

    # -- the port

    def apply(self, plan: Plan) -> str:
        self.view(plan.namespace)
        return client.run(self._launch(plan), LAUNCH_SECONDS + LAST_SECONDS)

    def observe(self, ref: AttemptRef, expected: Expected) -> Seen:
        view, ref = self.view(ref.namespace), ref.within(self.namespace)
        client.run(view.catch_up(), CALL_SECONDS)
        known = view.known(ref)
        if known is None or not (known[0].is_any_alive or self._shows_deletion(known)):
            known = client.run(self._look(ref), LOOK_SECONDS)
        found, at = known
        return Seen(
            found.replicas(expected), as_of=datetime.fromtimestamp(at, UTC),
            is_sealed=found.is_sealed and not found.is_any_alive,
        )  # fmt: skip

    def delete(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        client.run(self._end(ref.within(self.namespace), grace_seconds, is_now=is_now), END_SECONDS + LAST_SECONDS)

    def end_replicas(self, ref: AttemptRef, places: Expected, grace_seconds: int) -> None:
        ending = self._end_replicas(ref.within(self.namespace), places, grace_seconds)
        client.run(ending, END_SECONDS + LAST_SECONDS)

    def read_log(
        self, ref: AttemptRef, place: tuple[str, int, int], since: float | None, take: Callable[[bytes], bool]
    ) -> bool:
        view = self.view(ref.namespace)
        pod = next((one for one in view.drawn(ref).pods if one.spot == place), None)
        path = f"{view.path}/pods/{pod.name if pod else labels.pod(ref.run, ref.number, *place)}/log"
        reading = pod_logs.read(
            self.api, path, since=since, take=take, is_restarted=pod is not None and pod.is_restarted
        )
        return client.run(reading, pod_logs.READ_SECONDS + LAST_SECONDS)

    def placement(
        self, roles: Sequence[Role], *, resource: str, node_slots: int, excluded: Collection[str] = ()
    ) -> Placement:
        return sizes.placement(
            roles,
            resource=resource,
            node_slots=node_slots,
            site=self.site,
            nodes=self._known_sizes(),
            excluded=excluded,
        )

    def inspect_rights(self, namespace: str) -> list[Inspected]:
        site = replace(self.site, namespace=namespace)
        return client.run(inspection.rights(self.api, site), CALL_SECONDS)

    def make_namespace(self, name: str) -> None:
        client.run(namespaces.make(self.api, self.site, name), NAMESPACE_SECONDS)

    def identity(self) -> str:
        return client.run(inspection.identity(self.api), CALL_SECONDS)

    def inspect(self) -> list[Inspected]:
        return client.run(inspection.inspect(self.api, self.site, classes=claims.classes), CALL_SECONDS)

    def probe(self, asked: Probe, *, is_late: bool) -> list[Inspected] | None:
        return client.run(self._probing(asked.namespace).step(asked, is_late=is_late), KEEP_SECONDS)

    def remove_probe(self, uid: str, namespace: str = "") -> bool:
        return client.run(self._probing(namespace).remove(uid), KEEP_SECONDS)

    def raw_events(self, ref: AttemptRef, names: Collection[str]) -> ClusterEvents:
        namespace = ref.within(self.namespace).namespace
        return client.run(raw_events.read(self.api, namespace, names=names, ref=ref), CALL_SECONDS)

    def node_labels(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        return {one.name: one.labels for one in self._known_sizes() if one.name in names}

    def has_node(self, name: str) -> bool | None:
        known = {one.name for one in self._known_sizes()}
        return name in known if known else None

    @property
    def adds_nodes(self) -> bool:
        return self.site.more_nodes

    def list_nodes(self) -> list[NodeSeen] | None:
        ours = {self.namespace, *(view.namespace for view in self.views())}
        return client.run(self._nodes.read(ours), NODES_SECONDS)

    def check(self, plan: Plan) -> Checked:
        return client.run(self._check(plan), CALL_SECONDS)

    def claims_of_options(self, team: str) -> Collection[str]:
        theirs = {
            name: claim for name, claim in self.site.claims.items() if name.partition("/")[0] == team or "/" not in name
        }
        return set(theirs.values())

    def see_claim(self, claim: Claim) -> ClaimSeen:
        return client.run(claims.see(self.api, self._place(claim), claim), CALL_SECONDS)

    def grow_claim(self, claim: Claim) -> None:
        client.run(claims.grow(self.api, self._place(claim), claim), CALL_SECONDS)

    def remove_claim(self, claim: Claim) -> bool:
        return client.run(claims.remove(self.api, self._place(claim), claim), CALL_SECONDS)

    def storage_classes(self) -> dict[str, str] | None:
        return client.run(claims.classes(self.api), CALL_SECONDS)

    def try_claim(self, claim: Claim) -> str:
        return client.run(claims.attempt(self.api, self._place(claim), claim), CALL_SECONDS)

    def job_folders(self) -> JobFolders | None:
        return JobFolders(self.site.job_claim, self.site.job_claim_path.strip("/")) if self.site.job_claim else None

    def keep(self, errand: Errand) -> Kept | None:
        return client.run(self._keep(errand), KEEP_SECONDS)

    def _place(self, claim: Claim) -> str:
        return f"api/v1/namespaces/{claim.namespace or self.namespace}"

    @property
    def egress_allowed(self) -> Sequence[str]:
        return (*self.site.egress, *self.site.egress_allowed)

    @property
    def egress(self) -> Sequence[str] | None:
        return self.site.egress if self.site.network_policy else None

    @property
    def shape(self) -> ReplicaShape:
        return self.site.shape

    def open_attempts(self, namespace: str = "") -> list[AttemptRef]:
        view = self.view(namespace)
        client.run(view.catch_up(), CALL_SECONDS)
        if view.as_of < self._clock() - BROKEN_SECONDS:
            if view.trouble:
                raise Unreachable(f"namespace {view.namespace} cannot be watched: {view.trouble}")
            if not view.as_of:
                raise NotReadYet(f"the list of what runs in namespace {view.namespace} has not come yet")
            raise Unreachable(f"the watch of namespace {view.namespace} has been silent for too long")
        return [one.ref for one in view.attempts() if one.has_live_owner or one.is_any_alive]

    def changes(self) -> Iterator[str]:
        self.queue.is_asked_for_runs = True
        self.view()
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
        self.view()
        for view in self.views():  # cached before this reader existed
            view.queue_all()
        while True:
            taken = self.queue.take_pods(IDLE_SECONDS)
            yield [
                one
                for ref, pods in taken.items()
                for one in self.view(ref.namespace).updates(ref, tuple(pods.values()))
            ]

    def watch(self, namespaces: Collection[str]) -> None:
        for namespace in namespaces:
            self.view(namespace)

    def tidy(self) -> int:
        """Remove tombstones that are older than every call they guard against. Return how many."""
        limit = (datetime.fromtimestamp(self._clock(), UTC) - timedelta(seconds=TOMBSTONE_SECONDS)).isoformat()
        old = [
            (view, one)
            for view in self.views()
            for one in view.every_owner()
            if one.is_sealed and one.created_at[:19] < limit[:19]
        ]
        for view, one in old:
            body = {"preconditions": {"uid": one.uid}}
            with faultpoints.around("kube.tidy"):
                client.run(self.api.call("DELETE", f"{view.path}/services/{one.name}", body=body), CALL_SECONDS)
        return len(old)

    def watch_ages(self) -> dict[str, float]:
        """Return how many seconds ago the API server last sent something, for each resource that is watched.

        Before it sent anything, the age counts from the start of the watch: it may be away from the beginning. Of several
        namespaces the oldest counts.
        """
        now, ages = self._clock(), dict[str, float]()
        for view in self.views():
            for name, at in (("pods", view.pods.as_of), ("services", view.owners.as_of)):
                ages[name] = max(ages.get(name, 0.0), now - (view.began_at if at is None else at))
        return ages

    def close(self) -> None:
        """Stop watching. Not needed in a process that exits."""
        self.stop_watching()
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
        with faultpoints.around("cluster.placement"):
            answer = await self.api.call("GET", "api/v1/nodes", params=fresh_enough, seconds=SIZES_CALL_SECONDS)
        return tuple(read_size(one) for one in answer.body.get("items") or ()) if answer.is_good else ()

    async def _look(self, ref: AttemptRef) -> tuple[AttemptObjects, float]:
        """Return the attempt as the server has it now, and when it was requested."""
        at, view = self._clock(), self.view(ref.namespace)
        known = view.known(ref)
        # A cached owner exists, or was just deleted with its pods: either way the pods are listed.
        owner = (known[0].owner if known else None) or await self._owner(ref)
        if owner is None and known is not None:  # never begun: nothing to list
            return AttemptObjects(ref, None, known[0].pods, known[0].gone), known[1]
        wanted = {"labelSelector": labels.selector(labels.of_attempt(ref.run, ref.number))}
        with faultpoints.around("kube.look"):
            answer = await self.api.call("GET", f"{view.path}/pods", params=wanted)
        body = need(answer, "the pods of the attempt")
        pods = tuple(pod for one in body.get("items") or [] if (pod := read_pod(one)) is not None)
        self._looked = view.with_reports(AttemptObjects(ref, owner, pods, view.drawn(ref).gone)), at
        return self._looked

    async def _owner(self, ref: AttemptRef) -> Owner | None:
        name = labels.service(ref.run, ref.number)
        with faultpoints.around("kube.look"):
            answer = await self.api.call("GET", f"{self.view(ref.namespace).path}/services/{name}")
        return None if answer.status == 404 else read_owner(need(answer, f"Service {name}"))

    async def _end(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        view = self.view(ref.namespace)
        known = view.known(ref)
        if known is None or not known[0].has_live_owner or not (known[0].is_any_alive or self._shows_deletion(known)):
            known = self._just_seen(ref) or await self._look(ref)
        found = replace(known[0], lost=await self._confirmed(known[0].lost))
        self._looked = None
        began = self._clock()
        asked = self._asked.get(ref)
        is_recent = asked is not None and began < asked.answered + ASKED_SECONDS
        is_asked = is_recent and asked is not None and asked.is_now >= is_now
        tombstone = await end(
            found, api=self.api, path=view.path, grace_seconds=grace_seconds, is_asked=is_asked, is_now=is_now
        )  # fmt: skip
        if not is_asked and found.is_any_alive:
            now = self._clock()
            kept = {key: one for key, one in self._asked.items() if now < one.answered + TOMBSTONE_SECONDS}
            self._asked = {**kept, ref: DeletionRequest(began, now, is_now)}
        if tombstone is not None:
            view.owners.put(tombstone)

    def _shows_deletion(self, known: tuple[AttemptObjects, float]) -> bool:
        """True if we deleted every pod of this attempt and the cached view is newer than that request.

        Then an empty view can be trusted. Pods it may miss were created since and belong to an owner that is about to
        be deleted; they are looked up once the name is closed.
        """
        found, at = known
        asked = self._asked.get(found.ref)
        return found.has_live_owner and asked is not None and at > asked.began

    def _just_seen(self, ref: AttemptRef) -> tuple[AttemptObjects, float] | None:
        """Return the observation that the same visit began with, or None.

        It may be reused: pods created since belong to an owner that is about to be deleted.
        """
        found = self._looked
        is_it = found is not None and found[0].ref == ref
        return found if found and is_it and found[1] > self._clock() - VISIT_SECONDS else None

    async def _end_replicas(self, ref: AttemptRef, places: Expected, grace_seconds: int) -> None:
        view = self.view(ref.namespace)
        known = view.known(ref) or await self._look(ref)
        found = replace(known[0], lost=await self._confirmed(known[0].lost))
        await end_replicas(found, places, api=self.api, path=view.path, grace_seconds=grace_seconds)

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
        launcher = self._launcher(plan.ref.within(self.namespace).namespace)
        await self._need_alone(plan)
        return await launcher.launch(plan)

    async def _keep(self, errand: Errand) -> Kept | None:
        launcher = self._launcher(errand.namespace or self.namespace)
        return await keeper.keep(
            errand, api=self.api, site=launcher.site, agent=launcher.agent["metadata"]["name"],
            need_agent=launcher.need_agent, now=self._clock(),
        )  # fmt: skip

    def _probing(self, namespace: str) -> Probing:
        launcher = self._launcher(namespace or self.namespace)
        return Probing(
            self.api, launcher.site, launcher.agent["metadata"]["name"], launcher.need_agent,
            why=pod_reasons.why_no_answer, now=self._clock(),
        )  # fmt: skip

    async def _check(self, plan: Plan) -> Checked:
        return await self._launcher(plan.ref.within(self.namespace).namespace).check(plan)

    async def _need_alone(self, plan: Plan) -> None:
        """Raise Unreachable, and end them, if earlier attempts of the run are alive where they were made.

        They were closed before this one was begun, but a cluster restored to an older state has them back. In other
        namespaces it would be pods of somebody else with their names.
        """
        places = {self.namespace, *plan.former, *filter(None, [plan.namespace])}
        views = [view for view in self.views() if view.namespace in places]
        drawn = [view.drawn(AttemptRef(plan.run, number)) for view in views for number in range(1, plan.attempt)]
        for ref in [one.ref for one in drawn if one.is_any_alive]:
            found, _ = await self._look(ref)
            if found.is_any_alive:
                await self._end(ref, plan.grace_seconds)
                raise Unreachable(f"attempt {ref.number} of {ref.run} lives again; it is ended first")

    def _launcher(self, namespace: str) -> AttemptLauncher:
        with self._launching:
            if namespace not in self.launchers:
                try:
                    agent = manifests.agent_config(self._agent_file.read_bytes(), START.read_bytes())
                except OSError as error:
                    raise Unreachable(f"the agent is missing: {error}; build it with python -m agent.build") from error
                site = replace(self.site, namespace=namespace)
                created = partial(self._created, namespace)
                self.launchers[namespace] = AttemptLauncher(self.api, site, agent, created)
            return self.launchers[namespace]

    def _created(self, namespace: str, thing: Any) -> None:
        """Cache a pod we created ourselves at once, without waiting for the watch."""
        pod = read_pod(thing)
        if pod is not None:
            self.view(namespace).pods.put(pod)
