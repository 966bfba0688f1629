"""Warnings about pods that do not start, from Events: the only source for e.g. a volume that cannot be mounted.

Events are hints: they come late, are kept for an hour and may be forged. They only add a message to a waiting replica,
and count the pulls of an image that by the pod's own status does not exist (images.py).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..api.objects import get, text, version, whole, words
from ..build import labels
from . import images

# The scheduler's summary is a condition of the pod already, and its Events are the most frequent of all.
WANTED = {"fieldSelector": "involvedObject.kind=Pod,type=Warning,reason!=FailedScheduling"}
_MOUNT = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_SANDBOX = frozenset({"FailedCreatePodSandBox", "NetworkNotReady"})
_PULL = "Failed to pull image"
# 'MountVolume.SetUp failed for volume "x" : ...', 'unmounted volumes=[x y], unattached volumes=[...]'
_QUOTED, _UNMOUNTED = re.compile(r'volumes? "([^" ]+)"'), re.compile(r"unmounted volumes=\[([^\]]*)\]")
_OUR_OWN = frozenset({"agent", "told", "state", "tmp", "shm"})  # volumes without a claim (manifests.py)


@dataclass(frozen=True, slots=True)
class PodTrouble:
    """A warning about one pod. `pod` is that pod's UID; `kind` is mount, sandbox or pull; `count`: how often it was given.

    `missing` is the image that by this warning its registry does not have.
    """

    name: str
    uid: str
    version: int
    run: str
    attempt: int
    pod: str
    kind: str
    message: str
    at: str
    count: int = 1
    missing: str = ""
    namespace: str = ""


def read_trouble(thing: Any) -> PodTrouble | None:
    about, meta = get(thing, "involvedObject"), get(thing, "metadata")
    run, attempt = labels.attempt_of_name(get(about, "name"))
    name, uid, pod = get(meta, "name"), get(meta, "uid"), get(about, "uid")
    kind = _kind(text(get(thing, "reason")), text(get(thing, "message")))
    if not run or not kind or not all(isinstance(one, str) for one in (name, uid, pod)):
        return None
    times = (get(thing, "lastTimestamp"), get(thing, "eventTime"), get(meta, "creationTimestamp"))
    at = next((text(one) for one in times if text(one)), "")[:40]
    message = words(get(thing, "message"), most=400)
    # the field `count` of a kubelet's Events, and where newer libraries write the same
    count = max(1, whole(get(thing, "count")) or 0, whole(get(thing, "series", "count")) or 0)
    missing = images.missing_in_pull(text(get(thing, "message"))) if kind == "pull" else ""
    return PodTrouble(
        str(name), str(uid), version(meta), run, attempt, str(pod), kind, message, at, count, missing,
        namespace=text(get(meta, "namespace")),
    )  # fmt: skip


def explain(reason: str, troubles: Iterable[PodTrouble], claims: Mapping[str, str]) -> str:
    """Return the reason of a waiting pod, extended by Events. `claims` maps its volumes to their claims."""
    newest = max(troubles, key=lambda one: one.at, default=None)
    if newest is None:
        return reason
    if newest.kind == "pull":  # the runtime's message, which the pod itself loses while it waits for the next try
        is_mute = "cannot be pulled" in reason and newest.message not in reason
        return words(f"{reason}; {newest.message}") if is_mute else reason
    if reason:
        return reason
    if newest.kind == "mount":
        return words(f"volume not mounted{_of_claim(newest.message, claims)}: {newest.message}")
    return words(f"its node cannot set it up: {newest.message}")


def is_proof(missing: images.MissingImage, troubles: Iterable[PodTrouble]) -> bool:
    """Whether the registry has said often enough that it does not have the image for which this pod waits."""
    return sum(one.count for one in troubles if images.is_same(missing.image, one.missing)) >= images.PULLS


def _kind(reason: str, message: str) -> str:
    if reason in _MOUNT:
        return "mount"
    if reason in _SANDBOX:
        return "sandbox"
    return "pull" if reason == "Failed" and message.startswith(_PULL) else ""


def _of_claim(message: str, claims: Mapping[str, str]) -> str:
    """Name the claim an Event is about.

    An Event names our volume, or the cluster's own volume behind a claim, which we cannot map.
    """
    named = {*_QUOTED.findall(message), *(name for part in _UNMOUNTED.findall(message) for name in part.split())}
    about = sorted({claims[name] for name in named if name in claims})
    if not about and not (named and named <= _OUR_OWN):
        about = sorted(set(claims.values()))
    if not about:
        return ""
    return f", claim {about[0]}" if len(about) == 1 else f", one of the claims {', '.join(about)}"
