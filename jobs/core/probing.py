"""A check of a cluster by pods of Muster's own: what it is asked, and for how long. Pure."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from queues.shape import ReplicaShape

LATE = timedelta(minutes=10)  # after it was asked for; the first pull of a large image takes minutes
GIVEN_UP = timedelta(minutes=12)  # then it ends, also where the cluster does not answer
_UID = re.compile(r"^[a-z0-9]{1,20}\Z")


@dataclass(frozen=True)
class Probe:
    """One check. `shape` is what its pods have over the cluster's own: an image, and where a queue's pods run.

    `namespace`: of the queue's team, whose walls hold for its image too; empty: the cluster's own.

    Raises ValueError for a `uid` that cannot be part of a pod's name.
    """

    uid: str
    shape: ReplicaShape = field(default_factory=ReplicaShape)
    namespace: str = ""

    def __post_init__(self) -> None:
        if not _UID.match(self.uid):
            raise ValueError(f"{self.uid} cannot be part of the name of a pod")


def is_late(asked_at: datetime, now: datetime) -> bool:
    """Whether what is known by now is the answer."""
    return now > asked_at + LATE


def is_given_up(asked_at: datetime, now: datetime) -> bool:
    return now > asked_at + GIVEN_UP
