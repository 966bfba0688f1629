"""What pods and owner Services say, folded to the few facts that count; and a whole attempt from them. Pure.

Objects are other people's text: whatever is absurd in them becomes "not ours", never an exception.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.verdict import ENDED, ReplicaSeen, ReplicaState

from . import labels
from .kube_start import CAN_NOT_START

LONGEST_REASON = 500
NODE_LOST = "NodeLost"  # kubernetes/pkg/util/node: NodeUnreachablePodReason
_SIGNALS = range(129, 129 + 64)  # runtimes and shells say "ended by signal n" as 128 + n
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_CONTAINER = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)
_STATES = {
    "Pending": ReplicaState.PENDING,
    "Running": ReplicaState.RUNNING,
    "Succeeded": ReplicaState.SUCCEEDED,
    "Failed": ReplicaState.FAILED,
    "Unknown": ReplicaState.LOST,  # the node that should say does not answer
}


@dataclass(frozen=True, slots=True)
class Pod:
    """`owner` is the UID of the Service named like its attempt that owns it; `marked` is what its label claims."""

    name: str
    uid: str
    version: int
    place: labels.Place
    owner: str
    marked: str
    state: ReplicaState
    is_alive: bool
    is_ending: bool
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """The Service that an attempt's name belongs to: its owner, or the tombstone of a closed one."""

    name: str
    uid: str
    version: int
    run: str
    attempt: int
    is_sealed: bool
    is_ending: bool
    created_at: str = ""


@dataclass(frozen=True)
class Attempt:
    """What is there of one attempt. `gone` remembers how pods ended that are not there any more."""

    run: str
    number: int
    owner: Owner | None
    pods: tuple[Pod, ...] = ()
    gone: tuple[Pod, ...] = ()

    @property
    def has_live_owner(self) -> bool:
        return self.owner is not None and not self.owner.is_sealed

    def is_ours(self, pod: Pod) -> bool:
        """Owned by this attempt's Service. Where that is gone, what it left behind still counts until it is collected."""
        if not pod.owner or (pod.place.run, pod.place.attempt) != (self.run, self.number):
            return False
        return not self.has_live_owner or (self.owner is not None and pod.owner == self.owner.uid)

    @property
    def ours(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if self.is_ours(pod))

    @property
    def foreign(self) -> tuple[Pod, ...]:
        """Pods that carry our owner's UID as a label and are not owned by it: a delete of the collection would hit them."""
        marked = {pod.owner for pod in self.ours}
        if self.owner is not None:
            marked.add(self.owner.uid)
        return tuple(pod for pod in self.pods if pod.marked in marked and not self.is_ours(pod))

    @property
    def is_sealed(self) -> bool:
        """Closed by a tombstone, which also means that the owner is gone."""
        return self.owner is not None and self.owner.is_sealed

    @property
    def is_any_alive(self) -> bool:
        return any(pod.is_alive for pod in self.ours)

    def replicas(self, expected: Iterable[tuple[str, int]]) -> tuple[ReplicaSeen, ...]:
        there = {(pod.place.role, pod.place.index): pod for pod in (*self._ended(), *self.ours)}
        return tuple(_seen(*key, there.get(key)) for key in expected)

    def _ended(self) -> list[Pod]:
        """A pod that completed during its grace completed, although it is not there any more."""
        return [pod for pod in self.gone if pod.state in ENDED and self.is_ours(pod)]


def read_pod(thing: Any) -> Pod | None:
    """None for what names no attempt. What lies about its place is kept as nobody's: a delete by label would hit it."""
    meta = _get(thing, "metadata")
    run, attempt = labels.attempt_of(_get(meta, "labels"))
    name, uid = _get(meta, "name"), _get(meta, "uid")
    if not run or not isinstance(name, str) or not isinstance(uid, str):
        return None
    place = labels.place(_get(meta, "labels")) or labels.Place(run, attempt, "", 0)
    is_named_so = name == labels.pod(run, attempt, place.role, place.index)
    owner = owner_uid(meta, place) if is_named_so else ""
    state, exit_code, signal, reason = _state(thing)
    return Pod(
        name, uid, version(meta), place, owner, _text(_get(meta, "labels", labels.OWNER)), state,
        is_alive=_get(thing, "status", "phase") not in ("Succeeded", "Failed"),
        is_ending=_get(meta, "deletionTimestamp") is not None,
        exit_code=exit_code, signal=signal, reason=reason[:LONGEST_REASON],
        node=_text(_get(thing, "spec", "nodeName")),
    )  # fmt: skip


def read_owner(thing: Any) -> Owner | None:
    meta = _get(thing, "metadata")
    run, attempt = labels.attempt_of(_get(meta, "labels"))
    name, uid = _get(meta, "name"), _get(meta, "uid")
    if not run or name != labels.service(run, attempt) or not isinstance(uid, str):
        return None
    return Owner(
        name, uid, version(meta), run, attempt,
        is_sealed=_get(meta, "labels", labels.SEALED) == "true",
        is_ending=_get(meta, "deletionTimestamp") is not None,
        created_at=_text(_get(meta, "creationTimestamp")),
    )  # fmt: skip


def owner_uid(meta: Any, place: labels.Place) -> str:
    """The UID behind the reference to the Service of this place's attempt; labels prove nothing."""
    name = labels.service(place.run, place.attempt)
    for one in _list(_get(meta, "ownerReferences")):
        if _get(one, "kind") == "Service" and _get(one, "name") == name:
            return _text(_get(one, "uid"))
    return ""


def version(meta: Any) -> int:
    """For telling an older picture of the same object from a newer one; 0 where it says nothing."""
    text = _get(meta, "resourceVersion")
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20 else 0


def _seen(role: str, index: int, pod: Pod | None) -> ReplicaSeen:
    if pod is None:
        return ReplicaSeen(role, index, ReplicaState.ABSENT)
    return ReplicaSeen(role, index, pod.state, pod.is_alive, pod.exit_code, pod.signal, pod.reason)


def _state(thing: Any) -> tuple[ReplicaState, int | None, int | None, str]:
    status = _get(thing, "status")
    state = _STATES.get(_text(_get(status, "phase")), ReplicaState.PENDING)
    if _get(status, "reason") == NODE_LOST:
        state = ReplicaState.LOST
    match state:
        case ReplicaState.PENDING:
            return state, None, None, _why_pending(thing)
        case ReplicaState.FAILED:
            return _failure(thing)
        case ReplicaState.LOST:
            return state, None, None, f"its node {_text(_get(thing, 'spec', 'nodeName')) or '(none)'} does not answer"
        case ReplicaState.SUCCEEDED:
            return state, 0, None, ""
        case _:
            return state, None, None, _disruption(status)


def _why_pending(thing: Any) -> str:
    status = _get(thing, "status")
    scheduled = _condition(status, "PodScheduled")
    if _get(scheduled, "status") == "False":
        said = _text(_get(scheduled, "message"))
        return f"no place for it: {said}" if _get(scheduled, "reason") == "Unschedulable" else said
    for one in _list(_get(status, "containerStatuses")):
        waiting = _get(one, "state", "waiting")
        word, said = _text(_get(waiting, "reason")), _text(_get(waiting, "message"))
        if word in _IMAGE:
            return f"the image {_text(_get(one, 'image'))} can not be pulled ({word}): {said}"
        if word in _CONTAINER:
            return f"the container can not be created ({word}): {said}"
        if word == "CrashLoopBackOff":
            return f"it ends as soon as it is started: {said}"
    return ""


def _failure(thing: Any) -> tuple[ReplicaState, int | None, int | None, str]:
    status = _get(thing, "status")
    ends = [_get(one, "state", "terminated") for one in _list(_get(status, "containerStatuses"))]
    end = next((one for one in ends if isinstance(one, Mapping)), None)
    code = _get(end, "exitCode")
    code = code if isinstance(code, int) else None
    reason = _why_failed(status, end, code)
    if _get(end, "reason") == "OOMKilled":
        return ReplicaState.FAILED, None, 9, reason
    if code is not None and code in _SIGNALS:
        return ReplicaState.FAILED, None, code - 128, reason
    return ReplicaState.FAILED, code, None, reason


def _why_failed(status: Any, end: Any, code: int | None) -> str:
    if said := _get(status, "reason"):  # Evicted, OutOfcpu, UnexpectedAdmissionError, ...
        return f"{said}: {_text(_get(status, 'message'))}".rstrip(": ")
    if _get(end, "reason") == "OOMKilled":
        return "out of memory: it used more than its limit"
    if _get(end, "reason") in _CONTAINER or code == CAN_NOT_START:
        return _text(_get(end, "message"))
    return _disruption(status)


def _disruption(status: Any) -> str:
    """Why the cluster itself ends a pod: preemption, a drained node, a lost one."""
    found = _condition(status, "DisruptionTarget")
    if _get(found, "status") != "True":
        return ""
    return f"{_text(_get(found, 'reason'))}: {_text(_get(found, 'message'))}"


def _condition(status: Any, kind: str) -> Any:
    return next((one for one in _list(_get(status, "conditions")) if _get(one, "type") == kind), None)


def _get(thing: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(thing, Mapping):
            return None
        thing = thing.get(key)
    return thing


def _list(thing: Any) -> list[Any]:
    return thing if isinstance(thing, list) else []


def _text(thing: Any) -> str:
    return thing if isinstance(thing, str) else ""
