"""The port to where replicas run. Every adapter passes the same contract tests (`tests/contract`).

An adapter holds no state of record: any process may call it, at any time, repeatedly.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from django.conf import settings
from django.utils.module_loading import import_string

from common.errors import InvalidInput, Problem
from jobs.core.attempt_ref import AttemptRef
from jobs.core.keeping import Errand, JobFolders, Kept
from jobs.core.node_seen import NodeSeen
from jobs.core.plan import Claim, ClaimSeen, Plan, Role
from jobs.core.probing import Probe
from jobs.core.verdict import ReplicaUpdate, Seen
from queues import clusters as entries
from queues.clusters import is_known as is_known
from queues.clusters import names as names
from queues.shape import ReplicaShape

Expected = list[tuple[str, int]]  # (role, index) of every replica of the attempt
RETIRED_SECONDS = 60.0  # longer than any call to a cluster


@dataclass(frozen=True)
class Placement:
    """Whether machines can take a job. A field of one role's pods is named `roles.<role>.<field>`."""

    problem: Problem | None = None  # it surely never fits
    warnings: tuple[str, ...] = ()  # it does not as the machines are today


class Cluster(Protocol):
    HAS_LOGS: bool  # whether container logs can be read; otherwise `read_log` and `control_url` are not used
    namespace: str  # of the objects of new attempts, and of those whose reference says none; empty where there are none
    control_url: str  # the control plane's address for its agents
    HAS_NODES: bool  # whether it has machines of different sizes; `placement` is called only then
    SEPARATES: bool  # whether jobs of different teams are isolated; if not, all its teams are one trust domain
    FINDS_BY_NAME: bool  # whether replicas of different jobs can be confused by a common name (`RoleView.exclusive`)
    OPERATORS: frozenset[str]  # kinds of objects whose operators can make replicas here (`Role.operator`)
    MOUNTS: bool  # whether a volume can be mounted at a chosen path; if not, jobs only get its folder's name
    MAKES_PODS: bool  # whether replicas are pods, to which a `ReplicaShape` applies; if not, they are plain processes
    shape: ReplicaShape  # what its pods are, as far as jobs do not say otherwise

    def apply(self, plan: Plan) -> str | None:
        """Create what is missing of the attempt, in its namespace. May be called again; existing objects stay as they are.

        Returns a message for the job's history if part of it was left out.

        Raises Sealed once the attempt was closed, Refused for what will never work, Unreachable without an answer.
        """

    def observe(self, ref: AttemptRef, expected: Expected) -> Seen:
        """Return the attempt's current state. Raises Unreachable rather than guess."""

    def delete(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        """Seal the attempt, then ask what runs to end; called again until `observe` sees nothing alive.

        `is_now` drops the grace period, also for replicas that were asked to end before and are still within it.
        """

    def end_replicas(self, ref: AttemptRef, places: Expected, grace_seconds: int) -> None:
        """End the remains of replicas that failed or were lost; called again until `observe` sees nothing alive there.

        The attempt goes on, and `apply` with a higher incarnation gives these places to new replicas.
        """

    def read_log(
        self, ref: AttemptRef, place: tuple[str, int, int], since: float | None, take: Callable[[bytes], bool]
    ) -> bool:
        """Pass the lines of one replica's own output to `take` until it returns False.

        Each line begins with its time. `place` is (role, index, incarnation); `since` is in seconds since the epoch,
        None for the whole log. Returns whether the log was read to its end. Raises Unreachable if nothing could be
        read.
        """

    def placement(
        self, roles: Sequence[Role], *, resource: str, node_slots: int, excluded: Collection[str] = ()
    ) -> Placement:
        """Return why the machines can never run these roles at once, and what may keep them from it today.

        May query the cluster, briefly and at most once a minute. `resource` and `node_slots` as in a `Plan`; `excluded`
        are the names of nodes that none of them may use.
        """

    def open_attempts(self, namespace: str = "") -> list[AttemptRef]:
        """Return the attempts of a namespace that are not closed, or still alive; empty: of the cluster's own.

        Raises Unreachable rather than guess.
        """

    def changes(self) -> Iterator[str]:
        """Yield runs whose replicas changed since the last `next`; blocks for at most a second, yields "" when idle."""


@runtime_checkable
class Watches(Protocol):
    """A cluster that reports each replica's changes by itself, so that rows need not wait for a visit."""

    def replica_updates(self) -> Iterator[list[ReplicaUpdate]]:
        """Yield changes since the last `next`, each replica in its newest state.

        Blocks for at most a second, then yields [].
        """

    def watch(self, namespaces: Collection[str]) -> None:
        """Report the changes in these namespaces too, besides its own; called again as long as they are in use."""


@dataclass(frozen=True)
class Room:
    """What the machines of a cluster bear, in slots: in all, and how many more there is free memory for now."""

    slots: int
    free: int


@runtime_checkable
class Bounded(Protocol):
    """A cluster that knows how many slots its machines have room for, which may be fewer than its queues promise."""

    def room(self) -> Room | None:
        """Return for how many slots there is room; None where the administrator wants no bound."""


@dataclass(frozen=True)
class Checked:
    """What a cluster says of a pod that it was asked about and did not make. `state`: valid, invalid or not_checked."""

    state: str
    words: str = ""


@dataclass(frozen=True)
class Inspected:
    """One thing that was looked at in a cluster. `state`: ok, note or wrong; `remedy`: what to type or change, and `who` can."""

    about: str
    state: str
    words: str
    remedy: str = ""
    who: str = ""


@runtime_checkable
class Inspects(Protocol):
    """A cluster that can say whether it has what Muster needs."""

    def inspect(self) -> list[Inspected]:
        """Look at everything, and change nothing. Raises Unreachable without any answer."""

    def inspect_rights(self, namespace: str) -> list[Inspected]:
        """Look at what Muster may do in one namespace. Raises Unreachable without an answer."""

    def identity(self) -> str:
        """Return what no other cluster has; empty where it is not shown. Raises Unreachable without an answer."""


@runtime_checkable
class MakesNamespaces(Protocol):
    """A cluster in which Muster can make a namespace for a team."""

    def make_namespace(self, name: str) -> None:
        """Make it, with Muster's rights and a closed network. Raises Refused, also where it is there, and Unreachable."""


@runtime_checkable
class Probes(Protocol):
    """A cluster that can be looked at by small pods of Muster's own."""

    def probe(self, asked: Probe, *, is_late: bool) -> list[Inspected] | None:
        """Go one step on with a check; called again with the same one until there are findings. Its pods stay until `remove_probe`.

        `is_late`: what is known by now is the answer. Raises Unreachable.
        """

    def remove_probe(self, uid: str, namespace: str = "") -> bool:
        """Delete the pods of a check in its namespace; called again until it returns True, when none is left.

        Raises Unreachable.
        """


@dataclass(frozen=True)
class ClusterEvent:
    """One of a cluster's own Events, in its words. `object`: what it is about, as Pod/NAME; `count`: how often it was given."""

    at: datetime | None
    type: str
    reason: str
    object: str
    message: str
    count: int = 1


@dataclass(frozen=True)
class ClusterEvents:
    """The newest Events, the newest first. `message`: why there are none, or not all of them; in a sentence's words."""

    events: tuple[ClusterEvent, ...] = ()
    message: str = ""


@runtime_checkable
class RawEvents(Protocol):
    """A cluster that has Events of its own about what runs in it."""

    def raw_events(self, ref: AttemptRef, names: Collection[str]) -> ClusterEvents:
        """Return the newest about an attempt's pods; `names`: those that are known. Raises Unreachable."""


@runtime_checkable
class HasNodes(Protocol):
    """A cluster whose nodes have names and labels. Calls may query the cluster, briefly and at most once a minute."""

    def node_labels(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of those of these nodes that are known, by name."""

    def has_node(self, name: str) -> bool | None:
        """Return whether there is such a node; None if the nodes cannot be read."""


@runtime_checkable
class ListsNodes(Protocol):
    """A cluster that lists its nodes with what each offers.

    One to which an autoscaler adds nodes, so that those which are there prove nothing, says so by `adds_nodes`.
    """

    def list_nodes(self) -> list[NodeSeen] | None:
        """Return them as they are now, None without the right to see them. Raises Unreachable without an answer.

        Asked once a minute. What pods of others hold is told where the cluster lets itself be asked about them.
        """


@runtime_checkable
class Checks(Protocol):
    """A cluster that can be asked whether it would take a pod."""

    def check(self, plan: Plan) -> Checked:
        """Ask about the first replica of the plan. Raises Unreachable without an answer."""


@runtime_checkable
class Claims(Protocol):
    """A cluster that keeps the storage of teams' volumes. Calls raise Refused for what will never work, and Unreachable."""

    def claims_of_options(self, team: str) -> Collection[str]:
        """Return the claims that the cluster's setting gives to a team's jobs by their names. Asks no cluster."""

    def see_claim(self, claim: Claim) -> ClaimSeen:
        """Return what it says of a claim."""

    def grow_claim(self, claim: Claim) -> None:
        """Ask for the claim's size, where it is larger than before."""

    def remove_claim(self, claim: Claim) -> bool:
        """Ask for the deletion of a claim of Muster's own with its data; called again until it returns True."""

    def storage_classes(self) -> dict[str, str] | None:
        """Return the names of its storage classes with their provisioners; None where it has none, or does not say.

        The provisioner of the default class is there once more under "".
        """

    def try_claim(self, claim: Claim) -> str:
        """Return why it would not make this claim today, such as a quota, in its words; empty where it would."""


@runtime_checkable
class Isolates(Protocol):
    """A cluster that can limit what a job's pods reach over the network (core/egress.py)."""

    @property
    def egress(self) -> Sequence[str] | None:
        """The networks that all jobs' pods may reach besides each other; None where they reach everything."""

    @property
    def egress_allowed(self) -> Sequence[str]:
        """The networks that queues may choose from."""


@runtime_checkable
class Keeps(Protocol):
    """A cluster whose claims are looked after by a keeper: a small pod of Muster's own that mounts one of them for a moment."""

    def job_folders(self) -> JobFolders | None:
        """Return where jobs have folders that outlast them; None if they have none. Asks no cluster."""

    def keep(self, errand: Errand) -> Kept | None:
        """Have the claim's keeper do the errand; called again with the same one until there is an answer.

        A claim has one keeper at a time, which is gone with its answer; one that does not start is given up in the end.
        Raises Refused if it cannot be made, and Unreachable.
        """


def room_of(alias: str) -> Room | None:
    """Return for how many slots a cluster has room; None for one that does not know, or that is not configured."""
    if not is_known(alias) or not hasattr(backend(alias), "room"):  # asked of the class: no client is made
        return None
    cluster = adapters.get(alias)
    return cluster.room() if isinstance(cluster, Bounded) else None


def adds_nodes(alias: str) -> bool:
    """Return whether a cluster may have more nodes than it lists. Raises InvalidInput and ClusterError."""
    return bool(getattr(adapters.get(alias), "adds_nodes", False))


class Adapters:
    """The adapters of this process, one per cluster and edition of its entry, shared by its threads."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._made: dict[str, tuple[str, Cluster]] = {}

    def get(self, alias: str) -> Cluster:
        """Raises InvalidInput for an unknown name, and Unreachable where its credentials cannot be decrypted."""
        entry = _entry(alias)
        with self._making:
            edition, cluster = self._made.get(alias, ("", None))
            if cluster is None or edition != entry.edition:
                if cluster is not None:
                    _retire(cluster)
                cluster = import_string(entry.backend)(**entry.arguments())
                self._made[alias] = entry.edition, cluster
            return cluster

    def made(self) -> dict[str, Cluster]:
        """Return the adapters that this process has needed so far, by alias."""
        with self._making:
            return {alias: cluster for alias, (_, cluster) in self._made.items()}

    def drop_removed(self) -> None:
        """End the adapters of clusters that were removed: they watch for nobody."""
        gone = [alias for alias in self.made() if not is_known(alias)]
        with self._making:
            for _, cluster in [self._made.pop(alias) for alias in gone if alias in self._made]:
                _retire(cluster)

    def clear(self) -> None:
        """Forget all adapters, where settings.CLUSTERS has changed."""
        with self._making:
            self._made.clear()


def _retire(cluster: Cluster) -> None:
    """Close an adapter once no call that began before can still use it."""
    close = getattr(cluster, "close", None)
    if close is not None:
        timer = threading.Timer(RETIRED_SECONDS, close)
        timer.daemon = True
        timer.start()


adapters = Adapters()


def get(alias: str) -> Cluster:
    """Return a cluster's adapter, one per process and shared by its threads. Raises as `Adapters.get`."""
    return adapters.get(alias)


def namespace_of(alias: str) -> str:
    """Return the namespace of a cluster's new attempts; empty where there are none, or if it is no longer configured."""
    return get(alias).namespace if is_known(alias) else ""


def backend(alias: str) -> type[Cluster]:
    """Return the adapter's class, for its capabilities, without creating an adapter. Raises InvalidInput."""
    found: type[Cluster] = import_string(_entry(alias).backend)
    return found


def _entry(alias: str) -> entries.Entry:
    entry = entries.find(alias)
    if entry is None:
        raise InvalidInput(Problem("cluster", alias, entries.unknown(alias)))
    return entry


def configuration_problem() -> str:
    """Return what is wrong with MUSTER_CLUSTERS, in one line; empty if nothing is. Asks no cluster and no database."""
    for alias, entry in settings.CLUSTERS.items():
        try:
            if not hasattr(backend(alias), "open_attempts"):
                raise ImportError("it is no class of a cluster")
        except ImportError as error:
            return (
                f"MUSTER_CLUSTERS: BACKEND of {alias} is {entry['BACKEND']}, which cannot be used: {error}; "
                "for Kubernetes it is jobs.clusters.kubernetes.KubernetesCluster (docs/kubernetes.md)"
            )
        try:
            get(alias)
        except Exception as error:  # wrong options end in whatever the adapter meets first
            return f"MUSTER_CLUSTERS: OPTIONS of {alias} cannot be used: {' '.join(str(error).split())}"
    return ""
