"""The server's answers about clusters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from muster.http.model import Json, Model, each, mapping, moment, read, unchanged


@dataclass(frozen=True)
class Cluster(Model):
    """A cluster of the server. `server`, `version` and `options` are of one that an administrator added."""

    name: str
    makes_pods: bool = False  # if not, its replicas are processes of one machine
    namespace: str = ""
    queues: tuple[str, ...] = read(tuple, default=())
    is_added: bool = False  # if not, it is of the server's MUSTER_CLUSTERS
    server: str = ""  # empty: the cluster that the server's own pods run in
    version: int = 0
    options: Json = mapping()
    raw: Json = unchanged()


@dataclass(frozen=True)
class TeamNamespace(Model):
    """The namespace of a cluster in which a team's jobs are made, from the one that is submitted next."""

    team: str
    cluster: str = ""
    namespace: str = ""
    bound_at: datetime | None = moment()
    bound_by: str | None = None
    raw: Json = unchanged()


@dataclass(frozen=True)
class Inspected(Model):
    """One thing that a check of a cluster looked at."""

    about: str
    state: str = ""  # ok, note or wrong
    words: str = ""
    remedy: str = ""  # what to type or to change
    who: str = ""  # who can
    raw: Json = unchanged()


@dataclass(frozen=True)
class Holding(Model):
    """What a job holds of a node; `job` is None for all jobs that you may not see, together."""

    job: int | None = None
    job_name: str | None = None
    team: str | None = None
    gpus: int = 0
    replicas: int = 0
    idle: int = 0  # GPUs that were not used for five minutes
    broken: int = 0  # GPUs with Xid or ECC errors
    raw: Json = unchanged()


@dataclass(frozen=True)
class NodeChange(Model):
    """One change of a node."""

    kind: str
    at: datetime | None = moment()
    words: str = ""
    raw: Json = unchanged()


@dataclass(frozen=True)
class NodeBlame(Model):
    """A verdict that blames a node; without its job where you may not see that."""

    kind: str
    job: int | None = None
    job_name: str | None = None
    attempt: int | None = None
    headline: str | None = None
    judged_at: datetime | None = moment()
    raw: Json = unchanged()


@dataclass(frozen=True)
class ClusterNode(Model):
    """A node of a cluster. `history` and `failures` are there where one node was asked for."""

    key: str  # what stands for it: its name, or ~ and its number where names are not shown
    number: int = 0
    name: str = ""
    product: str = ""
    gpus: int = 0  # that it offers
    held: int = 0  # by pods of Muster
    others: int | None = None  # held by pods of others; None: that is not known
    free: int = 0  # an upper bound where `others` is None
    idle: int = 0
    broken: int = 0
    is_ready: bool = True
    is_cordoned: bool = False
    is_excluded: bool = False
    failed_jobs: int = 0
    problems: tuple[str, ...] = read(tuple, default=())
    taints: tuple[str, ...] = read(tuple, default=())
    levels: Json = mapping()
    jobs: tuple[Holding, ...] = each(Holding)
    history: tuple[NodeChange, ...] = each(NodeChange)
    failures: tuple[NodeBlame, ...] = each(NodeBlame)
    first_seen_at: datetime | None = moment()
    gone_at: datetime | None = moment()
    raw: Json = unchanged()


@dataclass(frozen=True)
class PodCheck(Model):
    """A look at a cluster by pods of its own. It has no findings while it is running."""

    id: int
    cluster: str = ""
    image: str = ""
    queue: str | None = None
    asked_by: str | None = None
    asked_at: datetime | None = moment()
    ended_at: datetime | None = moment()
    is_running: bool = False
    findings: tuple[Inspected, ...] = each(Inspected)
    raw: Json = unchanged()
