"""Ray's own errors: which kind each is, and one line for those whose first line does not say what happened. Pure.

The classes and messages are those of ray/exceptions.py, ray/_private/utils.py and ray/scripts/scripts.py (2.60).
"""

import re
from collections.abc import Sequence

from jobs.core import exits
from jobs.core.failure_kinds import Certainty, Classification, Kind

from .tracebacks import Raised

_SURE, _LIKELY = Certainty.SURE, Certainty.LIKELY
_CLASSES: dict[str, Classification] = {
    # Its monitor ended a task before the kernel would have: the node's main memory, unlike torch's class of this name.
    "OutOfMemoryError": (Kind.HOST_MEMORY, _SURE),
    "ObjectStoreFullError": (Kind.HOST_MEMORY, _SURE),
    "OutOfDiskError": (Kind.DISK, _SURE),
    "NodeDiedError": (Kind.NODE_LOST, _LIKELY),
    "LocalRayletDiedError": (Kind.NODE_LOST, _LIKELY),
    "TaskUnschedulableError": (Kind.NO_PLACE, _SURE),
    "ActorUnschedulableError": (Kind.NO_PLACE, _SURE),
    # Ray learns only that the connection to a process has closed, not how the process ended.
    "WorkerCrashedError": (Kind.SIGNAL, _LIKELY),
    "RuntimeEnvSetupError": (Kind.CONFIG, _LIKELY),
    "AuthenticationError": (Kind.CONFIG, _SURE),
    "ActorUnavailableError": (Kind.CONNECTION_LOST, _LIKELY),
    "OwnerDiedError": (Kind.CONNECTION_LOST, _LIKELY),
    "ObjectLostError": (Kind.CONNECTION_LOST, _LIKELY),
    "ObjectFetchTimedOutError": (Kind.COMM_TIMEOUT, _LIKELY),
    "GetTimeoutError": (Kind.COMM_TIMEOUT, _LIKELY),
    "RayChannelTimeoutError": (Kind.COMM_TIMEOUT, _LIKELY),
}  # fmt: skip
_ACTORS = frozenset({"ActorDiedError", "RayActorError"})  # the second: of older releases
_RANK = re.compile(r"^\[Rank (\d{1,7}) Error Snippet\]:", re.MULTILINE)  # ray/train/v2/api/exceptions.py
_DEATHS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.HOST_MEMORY, re.compile(r"due to the node running low on memory")),
    (Kind.NODE_LOST, re.compile(r"\bits node has died|node (?:it was running on )?(?:is dead|was terminated|died)")),
    (Kind.SIGNAL, re.compile(r"\bits worker process has died")),
)
_VERSIONS = re.compile(
    r"^Version mismatch: The cluster was started with:\s+Ray: (\S{1,60})\s+Python: (\S{1,60})\s+"
    r"This process on .{1,200} was started with:\s+Ray: (\S{1,60})\s+Python: (\S{1,60})"
)
_CLASS = re.compile(r"^\s*class_name: (.{1,100})", re.MULTILINE)
_DEATH = re.compile(r"^The actor (?:is dead|died) because (.{1,2000})", re.MULTILINE)
_ADVICE = re.compile(
    r" (?:Some common causes include|This can happen if|To see|Check \S{1,60} (?:files )?for more information)\b.*"
)
_ID = re.compile(r", (?:node )?ID: [0-9a-f]{16,}|\blease_id=[0-9a-f]{16,}, ")
# agent/frameworks/ray_cluster.py
_NO_ROOM = re.compile(r"^muster: (no node has what .{1,400}|a placement group asks for .{1,400})")
# `ray start --block` repeats the end of a process's log below this, and ends (ray/scripts/scripts.py).
_ENDED = re.compile(r"(?:-- (\w{1,40}) \[exit code=|END (\w{1,40})\.\w{1,4} tail \(exit code\(s\)=)(-?\d{1,5})\b")


def kind(raised: Raised) -> Classification | None:
    if _VERSIONS.match(raised.message):
        return Kind.IMPORT_ERROR, _SURE
    if not raised.name.startswith("ray."):
        return None
    if raised.short_name in _ACTORS or raised.name.startswith("ray.train."):
        return next(((kind, _LIKELY) for kind, pattern in _DEATHS if pattern.search(raised.message)), None)
    return _CLASSES.get(raised.short_name)


def words(raised: Raised) -> str:
    """Return the error in one line; empty if its first line says it all."""
    if versions := _VERSIONS.match(raised.message):
        ray, python, own_ray, own_python = versions.groups()
        return (
            f"{raised.name}: Version mismatch: the cluster has Ray {ray} and Python {python}, "
            f"this process has Ray {own_ray} and Python {own_python}"
        )
    if not raised.name.startswith("ray."):
        return ""
    if (death := _DEATH.search(raised.message)) and not raised.message.startswith(death[0]):
        actor = f"the actor {found[1]}" if (found := _CLASS.search(raised.message)) else "the actor"
        rank = f"rank {found[1]}: " if (found := _RANK.search(raised.message)) else ""
        return f"{raised.name}: {rank}{actor} died because {_brief(death[1])}"
    return _brief(raised.words)


def of_waiting(raised: Raised, lines: Sequence[str]) -> tuple[str, Classification] | None:
    """Return what a driver waited for in vain, where Muster printed that no node can hold it."""
    if raised.short_name not in ("GetTimeoutError", "TimeoutError"):
        return None
    found = next((one for line in reversed(lines) if (one := _NO_ROOM.match(line))), None)
    return (f"{found[1]} (then {raised.words[:140]})", (Kind.NO_PLACE, _LIKELY)) if found else None


def of_node(lines: Sequence[str]) -> tuple[str, Classification] | None:
    """Return which of a node's own processes ended and took the node with it, as `ray start --block` reports it."""
    found = next((one for line in reversed(lines) if (one := _ENDED.search(line))), None)
    if found is None:
        return None
    code = int(found[3])
    ending = exits.ending(None, -code) if code < 0 else exits.ending(code, None)
    return f"Ray's process {found[1] or found[2]} {ending}", (Kind.SIGNAL if code < 0 else Kind.UNKNOWN, _LIKELY)


def _brief(text: str) -> str:
    """Leave out Ray's advice and its identifiers of 28 bytes, which nothing else on Muster's pages shows."""
    return _ADVICE.sub("", _ID.sub("", text)).strip()
