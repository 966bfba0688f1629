"""What the keeper of a claim is asked to do, and what it answers: folders of removed jobs, and how full a volume is. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from volumes.use import Use

MOST_FOLDERS = 100  # of one errand
RUN = re.compile(r"^[0-9]{1,18}(-[a-z0-9]{1,20})?\Z")


@dataclass(frozen=True)
class JobFolders:
    """Where a cluster has a folder for each job: an existing claim, and a path in it."""

    claim: str
    path: str


@dataclass(frozen=True)
class Errand:
    """One claim, and the runs whose folders are to be deleted there, in `path`. Without any it is only looked at.

    Raises ValueError for a folder that is not named as a run.
    """

    claim: str
    namespace: str = ""  # of the claim; empty: the cluster's own
    path: str = ""
    folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [name for name in self.folders if not RUN.match(name)]
        if wrong or len(self.folders) > MOST_FOLDERS:
            raise ValueError(f"no keeper deletes these folders: {wrong or len(self.folders)}")

    @property
    def digest(self) -> str:
        """By which the pod of an errand is told from that of another one."""
        text = json.dumps([self.claim, self.path, sorted(self.folders)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Kept:
    """The answer. `problem`: why there is none, and nothing else is known."""

    gone: frozenset[str] = frozenset()
    left: Mapping[str, str] = field(default_factory=dict)  # why folders cannot be deleted
    late: frozenset[str] = frozenset()  # for which there was no time
    use: Use | None = None
    problem: str = ""
