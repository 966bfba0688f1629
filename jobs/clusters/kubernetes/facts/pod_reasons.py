"""Explain why a pod does not run, or failed, in terms a user can act on. Pure.

Kubernetes' own message is kept where it has more detail. The remedy is named where there is one.
"""

import re
from collections.abc import Mapping
from typing import Any

from agent.pod_entry import CAN_NOT_START
from jobs.core.verdict import NO_PLACE, PLACE_TAKEN

from ..api.objects import condition, get, items, text, whole, words
from . import images

CONTAINER = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)
# pkg/kubelet/eviction and emptyDir: 'Usage of EmptyDir volume "tmp" exceeds the limit "20Gi".'
_FULL_VOLUME = re.compile(r'EmptyDir volume "([a-z]+)" exceeds the limit')
_LIMIT_OF = {"state": "STATE_LIMIT", "tmp": "TMP_LIMIT", "shm": "MEMORY_LIMIT"}  # our folders and their options
_AVAILABLE = re.compile(r"^(\d+)/(\d+) nodes are available: (.*?)\.?(?:[.,]? (?:no new claims.*|preemption: .*))?\Z")
_SHORT_OF = re.compile(r"^(\d+) Insufficient (\S+)\Z")
_NODES = re.compile(r"^(\d+) node\(s\) (.+)\Z")
# What ended it: k8s.io/api/core/v1, reasons of the condition DisruptionTarget.
_DISRUPTIONS = {
    "PreemptionByScheduler": PLACE_TAKEN,
    "DeletionByTaintManager": "its node is closed to it or does not answer",
    "EvictionByEvictionAPI": "its node is being emptied",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ended it",
}


def why_pending(thing: Any) -> str:
    status = get(thing, "status")
    scheduled = condition(status, "PodScheduled")
    if get(scheduled, "status") == "False":
        message = words(get(scheduled, "message"))
        return no_place(message) if get(scheduled, "reason") == "Unschedulable" else message
    found = (_why_waiting(one) for one in containers(status))
    return next((reason for reason in found if reason), "")


def why_no_answer(thing: Any) -> str:
    """Return why a pod of Muster's own did not do its work: it does not start, or it failed. Empty while there is hope."""
    if get(thing, "status", "phase") != "Failed":
        return why_pending(thing)
    ends = [end for one in containers(get(thing, "status")) if (end := get(one, "state", "terminated")) is not None]
    end = ends[0] if ends else None
    said = words(get(end, "message"), most=400) or words(get(end, "reason"))
    return why_failed(thing, end) or f"it ended with code {whole(get(end, 'exitCode'))}: {said}".rstrip(": ")


def containers(status: Any) -> list[Any]:
    """Return what is said of its containers, those first that are started first."""
    return [*items(get(status, "initContainerStatuses")), *items(get(status, "containerStatuses"))]


def no_place(message: str) -> str:
    """Shorten the scheduler's summary: "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."."""
    found = _AVAILABLE.match(message)
    if found is None:
        return f"{NO_PLACE}: {message}"
    fit, count, rest = found.groups()
    parts = [_plainly(part) for part in re.split(r", (?=\d+ )", rest)]
    hint = "; ask for less, or wait until other work ends" if " Insufficient " in f" {rest}" else ""
    return f"{NO_PLACE}: {fit} of {count} nodes fit: {', '.join(parts)}{hint}"


def why_failed(thing: Any, end: Any) -> str:
    """Return why a pod failed. `end` is how its container ended, None if it never ran."""
    status = get(thing, "status")
    reason, message = words(get(status, "reason"), most=100), words(get(status, "message"))
    if reason == "Evicted":
        return f"evicted from node {node_of(thing)}: {message or 'it does not say why'}{_way_out(message)}"
    if reason:  # OutOfcpu, UnexpectedAdmissionError, DeadlineExceeded, ...
        return f"{reason}: {message}".rstrip(": ")
    if get(end, "reason") == "OOMKilled":
        return _out_of_memory(thing)
    if get(end, "reason") in CONTAINER or whole(get(end, "exitCode")) == CAN_NOT_START:
        return words(get(end, "message"))
    return disruption(status)


def disruption(status: Any) -> str:
    """Return why the cluster itself ends a pod: preemption, a drained node, a lost one."""
    found = condition(status, "DisruptionTarget")
    if get(found, "status") != "True":
        return ""
    reason, message = words(get(found, "reason"), most=100), words(get(found, "message"))
    return f"{_DISRUPTIONS.get(reason, 'the cluster ends it')} ({reason}): {message}".rstrip(": ")


def node_of(thing: Any) -> str:
    return words(get(thing, "spec", "nodeName"), most=253) or "(none)"


def _why_waiting(container: Any) -> str:
    waiting = get(container, "state", "waiting")
    reason, message = text(get(waiting, "reason")), words(get(waiting, "message"), most=300)
    if reason in images.REASONS:
        return images.why_not(text(get(container, "image")), reason, message)
    if reason in CONTAINER:
        return f"the container cannot be created ({reason}): {message}".rstrip(": ")
    if reason == "CrashLoopBackOff":
        code = whole(get(container, "lastState", "terminated", "exitCode"))
        with_code = "" if code is None else f", the last time with code {code}"
        return f"it ends as soon as it is started{with_code}: {message}".rstrip(": ")
    return ""


def _plainly(part: str) -> str:
    if found := _SHORT_OF.match(part):
        return f"{found[1]} without enough free {found[2]}"
    if found := _NODES.match(part):
        return f"{found[1]} {found[2]}"
    return part


def _way_out(message: str) -> str:
    found = _FULL_VOLUME.search(message)
    option = _LIMIT_OF.get(found[1]) if found else None
    return f" Raise {option}, or write less there." if option else ""


def _out_of_memory(thing: Any) -> str:
    limits = (get(one, "resources", "limits") for one in items(get(thing, "spec", "containers")))
    limit = next((words(one.get("memory"), most=40) for one in limits if isinstance(one, Mapping)), "")
    if limit:
        return f"out of memory: it used more than its limit of {limit}; raise memory in LIMITS, or use less"
    return f"out of memory: it has no limit, and its node {node_of(thing)} had no more to give"
