"""The server's answers about a job's attempts and replicas, plans, and acts on many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.http.model import Json, Model, each, mapping, moment, read, unchanged
from muster.jobs.models import Failure
from muster.jobs.models_waiting import Waiting


@dataclass(frozen=True)
class Attempt(Model):
    attempt: int
    started_at: datetime | None = moment()
    running_at: datetime | None = moment()
    ended_at: datetime | None = moment()
    outcome: str = ""
    message: str = ""
    first_failing_rank: int | None = None
    first_failure: Failure | None = read(Failure.parse)
    raw: Json = unchanged()

    @property
    def shown_outcome(self) -> str:
        """Return how it ended: the job's phase after it, and where another attempt followed, what made that follow."""
        if self.outcome not in ("admitted", "queued"):
            return self.outcome
        return "failed, retried" if self.first_failure is not None else "ended, started again"


@dataclass(frozen=True)
class Replica(Model):
    index: int
    role: str = ""
    attempt: int = 0
    name: str = ""
    node: str = ""
    state: str = ""
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    started_at: datetime | None = moment()
    ended_at: datetime | None = moment()
    last_heard_at: datetime | None = moment()  # when its agent sent its last batch
    is_silent: bool = False  # it runs, but its agent has sent nothing for a minute
    ending: str = ""  # how it ended, as text
    topology: dict[str, str] | None = None  # its node's values of the levels that its queue's template names
    raw: Json = unchanged()


@dataclass(frozen=True)
class Checkpoint(Model):
    """What is in a job's folder for checkpoints. `step` is None where its name says none."""

    name: str
    step: int | None = None
    size_bytes: int | None = None  # None: not known
    written_at: datetime | None = moment()
    attempt: int = 0  # in which it was last seen to change
    seen_at: datetime | None = moment()  # when the folder was last looked at
    raw: Json = unchanged()


@dataclass(frozen=True)
class PlanRole(Model):
    name: str
    replicas: int = 1
    processes: int = 1  # in each replica
    command: tuple[str, ...] = read(tuple, default=())
    pod: Mapping[str, Any] = mapping()  # image, requests, limits, node_selector and more, with the cluster's settings


@dataclass(frozen=True)
class Distribution(Model):
    nodes: int = 1
    min_nodes: int | None = None  # the fewest nodes an elastic job continues with
    nproc_per_node: int = 1
    world_size: int = 1


@dataclass(frozen=True)
class Plan(Model):
    """What a submission would become. `asked` counts each resource, `spec` is the job with all defaults filled in."""

    queue: str
    framework: str = ""
    roles: tuple[PlanRole, ...] = each(PlanRole)
    distribution: Distribution = read(Distribution.parse, default=Distribution())
    asked: Mapping[str, int] = mapping()
    spec: Mapping[str, Any] = mapping()
    fits_now: bool = False
    wait_reason: str = ""
    waiting: Waiting | None = read(Waiting.parse)
    notes: tuple[str, ...] = read(tuple, default=())  # warnings to read before it starts
    raw: Json = unchanged()


@dataclass(frozen=True)
class JobField(Model):
    """A field of a job that the server knows. Numbers are between `minimum` and `maximum`, both inclusive."""

    name: str
    framework: str | None = None  # whose jobs have it; None: every job
    type: str = ""  # integer, string, array (of text) or object (names to text)
    minimum: int | None = None
    maximum: int | None = None
    default: Any = None  # where the queue has none of its own
    help: str = ""
    remedy: str = ""
    raw: Json = unchanged()

    @property
    def bounds(self) -> str:
        return "" if self.minimum is None or self.maximum is None else f"{self.minimum} to {self.maximum}"


@dataclass(frozen=True)
class Acted(Model):
    """The outcome for one job of an act on many: `problem` explains why it was refused."""

    id: int
    status: int = 200
    phase: str = ""
    problem: str = read(lambda given: problem_text(given), default="")
    raw: Json = unchanged()

    @property
    def is_refused(self) -> bool:
        return self.status >= 400


def problem_text(given: Any) -> str:
    """Return the text of a sentence or of problem details alike."""
    if isinstance(given, Mapping):
        return str(given.get("detail") or given.get("message") or given.get("title") or "refused")
    return str(given)
