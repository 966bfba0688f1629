"""The server's answers about nodes that are excluded, or suspected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.http.model import Json, Model, moment, read, unchanged


@dataclass(frozen=True)
class ExcludedNode(Model):
    """A node that new pods stay away from; those on it go on."""

    id: int
    cluster: str = ""
    name: str = ""
    reason: str = ""
    excluded_at: datetime | None = moment()
    excluded_by: str | None = None
    raw: Json = unchanged()


@dataclass(frozen=True)
class NodeFailure(Model):
    """The newest verdict on a job that blames the node."""

    job: int
    job_name: str = ""
    team: str = ""
    attempt: int = 0
    kind: str = ""
    headline: str = ""
    judged_at: datetime | None = moment()
    raw: Json = unchanged()


def _failures(given: Any) -> tuple[NodeFailure, ...]:
    return tuple(NodeFailure.parse(one) for one in given)


@dataclass(frozen=True)
class SuspectedNode(Model):
    """A node that verdicts blame for the failures of several jobs within a day."""

    cluster: str
    name: str = ""
    reason: str = ""  # what would be written down where it is excluded
    failures: tuple[NodeFailure, ...] = read(_failures, default=())
    raw: Json = unchanged()
