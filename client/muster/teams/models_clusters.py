"""The server's answers about clusters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from muster.http.model import Json, Model, mapping, moment, read, unchanged


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
