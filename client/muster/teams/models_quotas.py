"""What the server sends about flavors, cohorts and the quotas of teams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from muster.http.model import Json, Model, moment, unchanged


@dataclass(frozen=True)
class Flavor(Model):
    """One kind of devices of one cluster."""

    name: str
    cluster: str = ""
    resource: str = "gpu"
    gpus_per_node: int = 0
    node_selector: Mapping[str, str] = field(default_factory=dict)  # labels of its nodes; empty: all of the cluster
    raw: Json = unchanged()


@dataclass(frozen=True)
class Cohort(Model):
    """Teams that lend each other what they do not use; `above`: the cohort that it is part of."""

    name: str
    above: str | None = None
    raw: Json = unchanged()


@dataclass(frozen=True)
class Quota(Model):
    """How much of a flavor a team has, and its use now, in devices; a limit of None is none."""

    flavor: str
    cohort: str | None = None
    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    weight: float = 1.0
    version: int = 0
    used: int = 0
    borrowed: int = 0
    lent: int = 0
    waiting: int = 0
    waiting_jobs: int = 0
    raw: Json = unchanged()


@dataclass(frozen=True)
class QuotaRequest(Model):
    """Somebody asks for more of a queue, or of a team's flavor. `slots` and `granted` are in all, not how many more."""

    id: int
    team: str = ""
    queue: str | None = None
    flavor: str | None = None
    has: int = 0
    slots: int = 0
    why: str = ""
    asked_at: datetime | None = moment()
    asked_by: str | None = None
    state: str = "open"
    granted: int | None = None
    answer: str = ""
    decided_at: datetime | None = moment()
    decided_by: str | None = None
    words: str = ""
    raw: Json = unchanged()


@dataclass(frozen=True)
class Usage(Model):
    """What was used in a time, in hours times slots. Fields over which it is a sum are empty.

    `lost`: what failed attempts did after their last checkpoint; `starting`: until all replicas ran; `idle`: of GPUs
    without use.
    """

    team: str
    queue: str = ""
    user: str = ""
    job: int | None = None
    name: str = ""
    begins: datetime | None = moment()
    resource: str = ""
    hours: float = 0.0
    lost: float = 0.0
    starting: float = 0.0
    idle: float = 0.0
    raw: Json = unchanged()
