"""From a job's description to roles: the narrow interface between frameworks and clusters. Pure.

Frameworks produce roles, clusters consume them, and neither depends on the other. A value that is known only once a
replica is placed (its number, an address, a port) is a token in the role, which the cluster replaces.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from common.errors import InvalidSpec, Problem
from queues.shape import ReplicaShape, merge

from .attempt_ref import AttemptRef
from .verdict import RoleView


@dataclass(frozen=True)
class Index:
    """Stands for the replica's number within its role, counted from `first`."""

    first: int = 0


@dataclass(frozen=True)
class FirstRank:
    """Stands for the replica's lowest rank, unique over all roles of the job."""


@dataclass(frozen=True)
class Host:
    """Stands for a replica's host name: a DNS name in a cluster, 127.0.0.1 locally."""

    role: str
    index: int


@dataclass(frozen=True)
class Port:
    """Stands for a port of the attempt: `number` if each replica has its own address, a free port locally."""

    name: str
    number: int


@dataclass(frozen=True)
class Here:
    """Stands for the replica's own host name, as other replicas reach it."""


@dataclass(frozen=True)
class Endpoint:
    """Stands for `host:port`."""

    host: Host
    port: Port


@dataclass(frozen=True)
class Launch:
    """Stands for a name that is unique to the attempt."""


@dataclass(frozen=True)
class First:
    """Stands for one text in the first replica of the role, and for another in the rest."""

    first: str
    rest: str


Value = str | Index | FirstRank | Host | Port | Here | Endpoint | Launch | First


@dataclass(frozen=True)
class Role:
    """Replicas with one command, and the shape of each. A framework returns its roles through `numbered`."""

    name: str
    replicas: int
    processes: int  # ranks in each replica; 0 for a role that has none, such as a driver
    command: tuple[str, ...]
    env: Mapping[str, Value] = field(default_factory=dict)
    completes: bool = True  # the job is done when all of these succeeded
    essential: bool = True  # the attempt fails when one of these fails
    least: int | None = None  # elastic: this many are enough, including the anchor; None: all are needed
    anchor: int | None = None  # elastic: the replica at which the others meet; the attempt ends with it
    first_rank: int = 0  # the lowest rank of replica 0
    is_rank: bool = False  # the command itself is the replica's one rank; False: it starts the ranks, or has none
    devices: int | None = None  # how many of the job's resource each replica takes; None: one for each process
    shape: ReplicaShape = field(default_factory=ReplicaShape)  # what is said of its pods: by the job, or in all (`on`)
    labels: Mapping[str, Value] = field(default_factory=dict)  # by which others find its pods in the cluster's own API
    reads_pods: bool = False  # it looks for pods in the cluster's own API
    exclusive: str = (
        ""  # a name by which others find its pods whatever their job; a cluster runs one such role at a time
    )
    operator: str = (
        ""  # the kind of object whose operator makes its pods, such as MonarchMesh; empty: Muster makes them
    )

    @property
    def slots(self) -> int:
        """How many slots of quota each replica takes."""
        return self.processes if self.devices is None else self.devices

    def on(self, below: ReplicaShape) -> "Role":
        """Return the role with all that is said of its pods: by a cluster's own settings, and over them by the job."""
        return replace(self, shape=merge(below, self.shape))

    def view(self) -> RoleView:
        """Return what is stored with the job: how its replicas are numbered, and whose end decides."""
        return RoleView(
            self.name, self.replicas, self.completes, self.essential, self.least, self.anchor, self.processes,
            self.first_rank, self.exclusive, self.slots,
        )  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A claim of a cluster. `size` is empty where it exists already and is not Muster's to make."""

    name: str
    size: str = ""
    storage_class: str = ""  # empty: the cluster's default
    access_mode: str = "ReadWriteMany"
    volume: str = ""  # the team's name for it, or what it is for the job
    team: str = ""
    run: str = ""  # of the job whose own it is
    job: str = ""  # its name
    namespace: str = ""  # empty: the cluster's own


@dataclass(frozen=True)
class ClaimSeen:
    """What a cluster says of a claim. `state`: pending, bound or lost; empty where it does not exist."""

    state: str = ""
    capacity: str = ""
    message: str = ""


@dataclass(frozen=True)
class StartFrom:
    """The checkpoints of an earlier job, which the replicas can read."""

    run: str  # of that job
    step: int | None = None
    claim: str = ""  # that has them; empty: the cluster's common claim, or the folder of the machine


@dataclass(frozen=True)
class SecretFiles:
    """The files of one of the team's secrets, by name, and where a pod has them; an empty path leaves that to the cluster."""

    files: Mapping[str, str]
    path: str = ""


@dataclass(frozen=True)
class Plan:
    """One launch of a job: everything a cluster needs, without further lookups."""

    run: str  # the job's id and uid (`Job.run`); part of every name and path
    attempt: int
    roles: tuple[Role, ...]
    framework: str = ""  # its half in the agent (agent/frameworks/), if it has one
    env: Mapping[str, str] = field(default_factory=dict)  # the user's own
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # one agent token per "role-index"
    grace_seconds: int = 30
    start_timeout_seconds: int = 300
    shared_folder: str = ""  # the job's own folder, kept across attempts
    team: str = ""  # the owner of the volumes
    job: str = ""  # its name
    is_headless: bool = False  # a headless Service of the job's own name is wanted
    user: str = ""
    resource: str = ""  # the resource of which each process takes one, by its name in the queue
    node_slots: int = 0  # how many of them a node of the queue has; 0: not known
    volumes: Mapping[str, str] = field(default_factory=dict)  # name to mount path, empty for the cluster's choice
    # Of those volumes that the team owns in Muster: the claim to mount, and where it is Muster's own, how it is made.
    claims: Mapping[str, "Claim"] = field(default_factory=dict)
    avoided_nodes: tuple[str, ...] = ()  # that failed the job before: others are preferred
    excluded_nodes: tuple[str, ...] = ()  # that administrators excluded: never used
    job_claims: Mapping[str, "Claim"] = field(default_factory=dict)  # of the job's own: workspace and checkpoints
    former: tuple[str, ...] = ()  # namespaces of its earlier attempts
    start_from: "StartFrom | None" = None
    read_only: frozenset[str] = frozenset()  # names of volumes that are mounted without the right to write
    # Of the team's secrets: files by the secret's name, and registry logins as a `.dockerconfigjson`.
    secret_files: Mapping[str, "SecretFiles"] = field(default_factory=dict, repr=False)
    token_accounts: frozenset[str] = frozenset()  # service accounts whose token is mounted
    docker_config: str = field(default="", repr=False)
    has_code: bool = True  # False: all of it is in the image, and no replica needs to fetch code
    incarnations: Mapping[tuple[str, int], int] = field(default_factory=dict)  # of places whose replica was replaced
    wanted: frozenset[tuple[str, int]] | None = None  # only these are to be created; None: all of them
    namespace: str = ""  # where its objects are to be made (`AttemptRef`)
    is_isolated: bool = (
        False  # its pods reach each other, and what `egress` says, also where the cluster's setting says nothing
    )
    egress: tuple[str, ...] = ()  # networks that they may reach besides those of the cluster's setting (core/egress.py)

    @property
    def ref(self) -> AttemptRef:
        return AttemptRef(self.run, self.attempt, self.namespace)

    def replicas(self) -> list[tuple[Role, int]]:
        """Return the replicas to be created."""
        every = [(role, index) for role in self.roles for index in range(role.replicas)]
        return [(role, index) for role, index in every if self.wanted is None or (role.name, index) in self.wanted]

    def is_whole_node(self, role: Role) -> bool:
        """Whether a replica of this role takes everything that a node of its queue has."""
        return 0 < self.node_slots == role.slots

    def incarnation(self, role: str, index: int) -> int:
        return self.incarnations.get((role, index), 0)


@dataclass(frozen=True)
class Distribution:
    """How many replicas, and how many processes in each."""

    nodes: int
    per_node: int

    @property
    def total(self) -> int:
        return self.nodes * self.per_node


# Beyond this an even split uses nodes so thinly that a user must ask for it: 13 GPUs are not 13 nodes of one.
MAX_SPREAD = 2


def numbered(*roles: Role) -> tuple[Role, ...]:
    """Return the roles with ranks that are unique over all of them, counted in their order from 0."""
    found: list[Role] = []
    for role in roles:
        found.append(replace(role, first_rank=world_size(found)))
    return tuple(found)


def world_size(roles: Iterable[Role]) -> int:
    """Return the number of ranks over all roles."""
    return sum(role.replicas * role.processes for role in roles)


def slots_of(roles: Iterable[Role]) -> int:
    """Return how many slots of quota a job of these roles takes; at least one, also without ranks or devices."""
    return max(1, sum(role.replicas * role.slots for role in roles))


def distribute(gpus: int, per_node: int, nodes: int = 1) -> Distribution:
    """Split `gpus` evenly over the fewest nodes that have `per_node` each.

    Never more GPUs than requested, never an uneven split: 12 on nodes of 8 is 2 x 6. No GPUs means `nodes` CPU replicas
    of one process. Raises InvalidSpec naming the nearest totals that work.
    """
    if gpus < 0:
        raise InvalidSpec(Problem("gpus", gpus, "cannot be negative; use 0 for a CPU job"))
    if per_node < 1:
        raise InvalidSpec(Problem("gpus", gpus, "this queue's nodes have no GPUs; use 0, or choose another queue"))
    if gpus == 0:
        return Distribution(nodes, 1)
    split = _even_split(gpus, per_node)
    if split is None:
        near = " and ".join(str(total) for total in nearest(gpus, per_node))
        raise InvalidSpec(
            Problem(
                "gpus", gpus, f"cannot be split evenly over nodes of {per_node} GPUs; the nearest totals are {near}"
            )
        )
    return split


def nearest(gpus: int, per_node: int) -> list[int]:
    """Return the closest totals below and above that split evenly."""
    below = next((total for total in range(gpus - 1, 0, -1) if _even_split(total, per_node)), None)
    above = next(total for total in range(gpus + 1, gpus + per_node + 1) if _even_split(total, per_node))
    return [total for total in (below, above) if total is not None]


def _even_split(gpus: int, per_node: int) -> Distribution | None:
    fewest = math.ceil(gpus / per_node)
    for nodes in range(fewest, fewest * MAX_SPREAD + 1):
        if gpus % nodes == 0:
            return Distribution(nodes, gpus // nodes)
    return None
