"""Nodes as the pages show them, and what pods hold of their devices. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from jobs.core.node_seen import NodeSeen
from jobs.core.pod_fields import taint

from ..api.objects import condition, get, items, text, words
from ..build import labels

PRODUCT_LABELS = (
    "nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator",
)  # fmt: skip
# Taints that Kubernetes sets for what is read from the node itself, or for troubles below.
_REPEATED = (
    "unschedulable", "not-ready", "unreachable", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable",
)  # fmt: skip
_ITS_OWN = frozenset(f"node.kubernetes.io/{name}" for name in _REPEATED)
# Conditions that are troubles while they are true: Kubernetes' own, and the usual ones of the node problem detector.
_TROUBLES = (
    "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "KernelDeadlock", "ReadonlyFilesystem", "GPUUnhealthy",
)  # fmt: skip


def read_seen(thing: Any, *, known: Collection[str]) -> NodeSeen | None:
    """Return a node, None without a name. `known` are resources that queues of the cluster ask for."""
    meta, spec, status = get(thing, "metadata"), get(thing, "spec"), get(thing, "status")
    name = text(get(meta, "name"))
    if not name:
        return None
    allocatable = get(status, "allocatable")
    offered = allocatable if isinstance(allocatable, Mapping) else {}
    said = get(meta, "labels")
    its_labels = {str(key): str(value) for key, value in said.items()} if isinstance(said, Mapping) else {}
    taints = [one for one in items(get(spec, "taints")) if isinstance(one, Mapping) and one.get("key") not in _ITS_OWN]
    return NodeSeen(
        name,
        _silence(status),
        is_cordoned=get(spec, "unschedulable") is True,
        devices={str(key): count for key, value in offered.items() if (count := _devices(key, value, known))},
        product=next((its_labels[label] for label in PRODUCT_LABELS if its_labels.get(label)), ""),
        labels=its_labels,
        taints=tuple(sorted(words(taint(one), most=200) for one in taints)),
        troubles=tuple(kind for kind in _TROUBLES if text(get(condition(status, kind), "status")) == "True"),
    )


def _silence(status: Any) -> str:
    """Return why a node is not ready, empty if it is."""
    ready = condition(status, "Ready")
    if get(ready, "status") == "True":
        return ""
    message = words(get(ready, "message"), most=200) or words(get(ready, "reason"), most=100)
    return message or "it has not reported that it is ready"


def held_by_others(pods: Iterable[Any], *, known: Collection[str], ours: Collection[str]) -> Counter[str]:
    """Return how many devices pods hold that are not Muster's, by node.

    A pod with the labels of a run is Muster's in its own namespaces (`ours`) only: elsewhere another installation made it.
    """
    found = Counter[str]()
    for pod in pods:
        meta, spec, phase = get(pod, "metadata"), get(pod, "spec"), text(get(pod, "status", "phase"))
        node = text(get(spec, "nodeName"))
        is_ours = text(get(meta, "namespace")) in ours and bool(labels.attempt_of(get(meta, "labels"))[0])
        if node and not is_ours and phase not in ("Succeeded", "Failed"):
            found[node] += _held(spec, known)
    return found


def _held(spec: Any, known: Collection[str]) -> int:
    """Return the devices of a pod: those of its containers together, or of one that runs before them if that has more."""
    own = sum(_asked(one, known) for one in items(get(spec, "containers")))
    return max([own, *(_asked(one, known) for one in items(get(spec, "initContainers")))])


def _asked(container: Any, known: Collection[str]) -> int:
    limits = get(container, "resources", "limits")
    return sum(_devices(key, value, known) for key, value in limits.items()) if isinstance(limits, Mapping) else 0


def _devices(key: Any, value: Any, known: Collection[str]) -> int:
    """Return how many devices that is: a resource that queues ask for, or that is a GPU or a part of one by its name."""
    if not isinstance(key, str) or not (key in known or "gpu" in key or key.partition("/")[2].startswith("mig-")):
        return 0
    digits = str(value)
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 7 else 0
