"""The server's answers about clusters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from muster.http.model import Json, Model, each, moment, read, unchanged


@dataclass(frozen=True)
class Cluster(Model):
    """A cluster that the server is configured with."""

    name: str
    makes_pods: bool = False  # if not, its replicas are processes of one machine
    namespace: str = ""
    queues: tuple[str, ...] = read(tuple, default=())
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
