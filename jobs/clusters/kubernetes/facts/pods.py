"""Reduce pods and owner Services to the few facts that matter; and a whole attempt made from them. Pure.

Objects are untrusted: malformed content makes them "not ours", and never raises.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.core import exits
from jobs.core.attempt_ref import AttemptRef
from jobs.core.verdict import ENDED, NO_IMAGE, PLACE_TAKEN, ReplicaSeen, ReplicaState

from ..api.objects import condition, get, items, text, version, whole, words
from ..build import labels
from . import images, pod_reasons
from .events import PodTrouble, explain, is_proof

NODE_LOST = "NodeLost"  # kubernetes/pkg/util/node: NodeUnreachablePodReason
_STATES = {
    "Pending": ReplicaState.PENDING,
    "Running": ReplicaState.RUNNING,
    "Succeeded": ReplicaState.SUCCEEDED,
    "Failed": ReplicaState.FAILED,
    "Unknown": ReplicaState.LOST,  # the node that should report does not answer
}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. `owner` is the UID of the Service of its attempt that owns it; `marked` is what its label claims."""

    name: str
    uid: str
    version: int
    place: labels.ReplicaLabels
    owner: str
    marked: str
    state: ReplicaState
    is_alive: bool
    is_ending: bool
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    node: str = ""
    claims: tuple[tuple[str, str], ...] = ()  # its volumes with claims: (volume, claim)
    is_of_mesh: bool = False  # made by a MonarchMesh, which makes another one when this one is deleted
    is_restarted: bool = False  # its container ended, and another one was started that does nothing
    missing: images.MissingImage | None = None  # the image for which it waits, if its registry says that it has none
    namespace: str = ""

    @property
    def spot(self) -> tuple[str, int, int]:
        """Its role, index and incarnation within the attempt."""
        return self.place.role, self.place.index, self.place.incarnation


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
    namespace: str = ""


@dataclass(frozen=True)
class AttemptObjects:
    """What exists of one attempt. `gone` remembers how deleted pods had ended."""

    ref: AttemptRef
    owner: Owner | None
    pods: tuple[Pod, ...] = ()
    gone: tuple[Pod, ...] = ()
    troubles: tuple[PodTrouble, ...] = ()  # what Events report about its pods
    lost: Mapping[str, str] = field(default_factory=dict)  # its lost nodes, with the reason

    @property
    def has_live_owner(self) -> bool:
        return self.owner is not None and not self.owner.is_sealed

    def is_ours(self, pod: Pod) -> bool:
        """Whether this attempt's Service owns the pod.

        Once the Service is gone, its pods count until they are collected.
        """
        if not pod.owner or (pod.place.run, pod.place.attempt) != (self.ref.run, self.ref.number):
            return False
        return not self.has_live_owner or (self.owner is not None and pod.owner == self.owner.uid)

    @property
    def ours(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if self.is_ours(pod))

    @property
    def foreign(self) -> tuple[Pod, ...]:
        """Pods labelled with our owner's UID but not owned by it: a delete of the collection would hit them."""
        marked = {pod.owner for pod in self.ours}
        if self.owner is not None:
            marked.add(self.owner.uid)
        return tuple(pod for pod in self.pods if pod.marked in marked and not self.is_ours(pod))

    @property
    def is_sealed(self) -> bool:
        """Whether it is closed by a tombstone, which also means that the owner is gone."""
        return self.owner is not None and self.owner.is_sealed

    @property
    def is_any_alive(self) -> bool:
        return any(pod.is_alive for pod in self.ours)

    @property
    def nodes(self) -> set[str]:
        """The nodes on which pods of it may be alive."""
        return {pod.node for pod in self.ours if pod.is_alive and pod.node}

    def replicas(self, expected: Iterable[tuple[str, int]]) -> tuple[ReplicaSeen, ...]:
        """Return each place's newest pod; an earlier pod that is still alive keeps the place occupied."""
        by_age = sorted((*self._ended(), *self.ours), key=lambda pod: pod.place.incarnation)
        newest = {(pod.place.role, pod.place.index): pod for pod in by_age}
        taken = {(pod.place.role, pod.place.index) for pod in self.ours if pod.is_alive}
        return tuple(_seen(*key, self._explained(newest.get(key)), is_alive=key in taken) for key in expected)

    def _explained(self, pod: Pod | None) -> Pod | None:
        """Add information from the pod's node and from Events."""
        if pod is None or pod.state in ENDED:
            return pod
        if pod.is_of_mesh and any(one.uid != pod.uid and one.spot == pod.spot for one in self.gone):
            return replace(
                pod, state=ReplicaState.LOST, reason=f"its pod {pod.name} was deleted, and MonarchMesh made another"
            )
        if pod.node in self.lost:
            return replace(pod, state=ReplicaState.LOST, reason=f"its node {pod.node} {self.lost[pod.node]}")
        if pod.state is ReplicaState.PENDING:
            about = [one for one in self.troubles if one.pod == pod.uid]
            if pod.missing is not None and is_proof(pod.missing, about):
                return replace(pod, state=ReplicaState.FAILED, reason=words(images.proof(pod.missing)))
            return replace(pod, reason=explain(pod.reason, about, dict(pod.claims)))
        return pod

    def _ended(self) -> list[Pod]:
        """Return deleted pods of which it is known how they ended.

        A pod that completed during its grace period counts as completed, one that was preempted and gone before it could
        report anything as lost for that reason.
        """
        preempted = (
            replace(pod, state=ReplicaState.LOST)
            for pod in self.gone
            if pod.state not in ENDED and pod.reason.startswith(PLACE_TAKEN)
        )
        return [pod for pod in (*self.gone, *preempted) if pod.state in ENDED and self.is_ours(pod)]


def read_pod(thing: Any) -> Pod | None:
    """Return a pod's facts, or None if its labels name no attempt.

    A pod whose name or labels contradict its place is kept as foreign, because a delete by label would hit it.
    """
    meta, status = get(thing, "metadata"), get(thing, "status")
    own_labels, name, uid = get(meta, "labels"), get(meta, "name"), get(meta, "uid")
    place = labels.replica_of(own_labels) or labels.ReplicaLabels(*labels.attempt_of(own_labels), "", 0)
    run, attempt = place.run, place.attempt
    if not run or not isinstance(name, str) or not isinstance(uid, str):
        return None
    is_named_so = name == labels.pod(run, attempt, place.role, place.index, place.incarnation)
    is_of_mesh = not is_named_so and _is_of_mesh(meta, place)
    owner = owner_uid(meta, place) if is_named_so else text(get(own_labels, labels.OWNER)) if is_of_mesh else ""
    state, exit_code, signal, reason = _state(thing)
    return Pod(
        name, uid, version(meta), place, owner, text(get(own_labels, labels.OWNER)), state,
        is_alive=get(status, "phase") not in ("Succeeded", "Failed"),
        is_ending=get(meta, "deletionTimestamp") is not None,
        exit_code=exit_code, signal=signal, reason=words(reason),
        node=words(get(thing, "spec", "nodeName"), most=253), claims=_claims(thing),
        is_of_mesh=is_of_mesh, is_restarted=any(get(one, "lastState", "terminated") for one in items(get(status, "containerStatuses"))),
        missing=_missing(status) if state is ReplicaState.PENDING else None, namespace=text(get(meta, "namespace")),
    )  # fmt: skip


def read_owner(thing: Any) -> Owner | None:
    meta = get(thing, "metadata")
    run, attempt = labels.attempt_of(get(meta, "labels"))
    name, uid = get(meta, "name"), get(meta, "uid")
    if not run or name != labels.service(run, attempt) or not isinstance(uid, str):
        return None
    return Owner(
        name, uid, version(meta), run, attempt,
        is_sealed=get(meta, "labels", labels.SEALED) == "true",
        is_ending=get(meta, "deletionTimestamp") is not None,
        created_at=text(get(meta, "creationTimestamp")), namespace=text(get(meta, "namespace")),
    )  # fmt: skip


def owner_uid(meta: Any, place: labels.ReplicaLabels) -> str:
    """Return the UID in the reference to the Service of this place's attempt; labels prove nothing."""
    name = labels.service(place.run, place.attempt)
    for one in items(get(meta, "ownerReferences")):
        if get(one, "kind") == "Service" and get(one, "name") == name:
            return text(get(one, "uid"))
    return ""


def _is_of_mesh(meta: Any, place: labels.ReplicaLabels) -> bool:
    """Whether the StatefulSet of a MonarchMesh made the pod; the mesh is named like the role.

    The Service that owns the mesh is two objects away, and only the label names it.
    """
    makers = [one for one in items(get(meta, "ownerReferences")) if get(one, "controller") is True]
    is_made_so = any((get(one, "kind"), get(one, "name")) == ("StatefulSet", place.role) for one in makers)
    is_named_so = get(meta, "name") == labels.mesh_pod(place.role, place.index)
    return is_made_so and is_named_so and get(meta, "labels", labels.MESH) == place.role


def _claims(thing: Any) -> tuple[tuple[str, str], ...]:
    of_claims = (one for one in items(get(thing, "spec", "volumes")) if get(one, "persistentVolumeClaim") is not None)
    there = ((get(one, "name"), get(one, "persistentVolumeClaim", "claimName")) for one in of_claims)
    return tuple((words(name, most=63), words(claim, most=253)) for name, claim in there if text(name) and text(claim))


def _seen(role: str, index: int, pod: Pod | None, *, is_alive: bool) -> ReplicaSeen:
    if pod is None:
        return ReplicaSeen(role, index, ReplicaState.ABSENT)
    return ReplicaSeen(
        role,
        index,
        pod.state,
        is_alive,
        pod.exit_code,
        pod.signal,
        pod.reason,
        pod.node,
        pod.place.incarnation,
        pod.version,
    )


def _state(thing: Any) -> tuple[ReplicaState, int | None, int | None, str]:
    """Return (state, exit code, signal, reason)."""
    status = get(thing, "status")
    state = _STATES.get(text(get(status, "phase")), ReplicaState.PENDING)
    if get(thing, "spec", "restartPolicy") == "Always" and (end := _end(thing)) is not None:
        # A StatefulSet's pods cannot end; the container that is started again only waits (agent/pod_entry.py).
        state = ReplicaState.FAILED if whole(get(end, "exitCode")) != 0 else ReplicaState.SUCCEEDED
    if get(status, "reason") == NODE_LOST or _is_out_of_sight(status):
        state = ReplicaState.LOST
    match state:
        case ReplicaState.PENDING:
            reason = pod_reasons.why_pending(thing)
            return ReplicaState.FAILED if reason.startswith(NO_IMAGE) else state, None, None, reason
        case ReplicaState.FAILED:
            return (ReplicaState.ABSENT, None, None, "") if _has_never_run(thing) else _failure(thing)
        case ReplicaState.LOST:
            return state, None, None, f"its node {pod_reasons.node_of(thing)} does not answer"
        case ReplicaState.SUCCEEDED:
            return state, 0, None, ""
        case _:
            return state, None, None, pod_reasons.disruption(status)


def _is_out_of_sight(status: Any) -> bool:
    """Whether the pod was evicted because its node is silent.

    On a node that is merely tainted, the kubelet would still report the pod's state.
    """
    if get(status, "phase") != "Running" or (target := condition(status, "DisruptionTarget")) is None:
        return False
    is_ended = get(target, "status") == "True" and get(target, "reason") == "DeletionByTaintManager"
    ready = condition(status, "Ready")
    return is_ended and get(ready, "status") == "False" and not get(ready, "reason")


def _failure(thing: Any) -> tuple[ReplicaState, int | None, int | None, str]:
    end = _end(thing)
    code = whole(get(end, "exitCode"))
    reason = pod_reasons.why_failed(thing, end)
    if get(end, "reason") == "OOMKilled":
        return ReplicaState.FAILED, None, 9, reason
    # Container runtimes report the end by a signal as shells do.
    if (signal := exits.signal_of(code, None)) is not None:
        return ReplicaState.FAILED, None, signal, reason
    return ReplicaState.FAILED, code, None, reason


def _has_never_run(thing: Any) -> bool:
    """Whether the pod was deleted before its container was made, and nothing else is said of its end."""
    statuses = items(get(thing, "status", "containerStatuses"))
    return any(map(_is_made_up, statuses)) and _end(thing) is None and not pod_reasons.why_failed(thing, None)


def _is_made_up(container: Any) -> bool:
    """Whether the end is one that the kubelet gives to a container that it never made, with code 137 as for a SIGKILL.

    Source: kubernetes/pkg/kubelet/status/status_manager.go, TerminatePod.
    """
    return get(container, "state", "terminated", "reason") == "ContainerStatusUnknown" and not get(
        container, "containerID"
    )


def _end(thing: Any) -> Any:
    """Return how the pod's container ended the first time that it is known of; None if it has not."""
    statuses = [one for one in items(get(thing, "status", "containerStatuses")) if not _is_made_up(one)]
    ends = [get(one, which, "terminated") for which in ("lastState", "state") for one in statuses]
    return next((one for one in ends if isinstance(one, Mapping)), None)


def _missing(status: Any) -> images.MissingImage | None:
    found = (images.missing(one) for one in pod_reasons.containers(status))
    return next((one for one in found if one is not None), None)
