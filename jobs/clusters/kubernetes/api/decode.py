"""Decode only the fields we read of a watched object, and skip the rest of it: most of a pod does not concern us.

A shape names every field the readers use (a test compares them); leaf values are not checked. JSON that fits no shape
is decoded as plain JSON, and the readers then find nothing in it.
"""

# ruff: noqa: N815 - the names are those of Kubernetes

import json
from typing import Any

import msgspec


class _Shape(msgspec.Struct, gc=False):
    """Base of the shapes. Missing fields are None, as `objects.get` expects."""


class _Meta(_Shape):
    name: Any = None
    namespace: Any = None
    uid: Any = None
    resourceVersion: Any = None
    creationTimestamp: Any = None
    deletionTimestamp: Any = None
    labels: Any = None
    annotations: Any = None
    ownerReferences: Any = None


class _Volume(_Shape):
    name: Any = None
    persistentVolumeClaim: Any = None


class _Container(_Shape):
    resources: Any = None


class _Spec(_Shape):
    nodeName: Any = None
    restartPolicy: Any = None
    volumes: list[_Volume] | None = None
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None
    unschedulable: Any = None
    taints: Any = None


class _Condition(_Shape):
    type: Any = None
    status: Any = None
    reason: Any = None
    message: Any = None


class _ContainerStatus(_Shape):
    image: Any = None
    containerID: Any = None
    state: Any = None
    lastState: Any = None


class _Status(_Shape):
    phase: Any = None
    reason: Any = None
    message: Any = None
    allocatable: Any = None
    conditions: list[_Condition] | None = None
    initContainerStatuses: list[_ContainerStatus] | None = None
    containerStatuses: list[_ContainerStatus] | None = None


class _Object(_Shape):
    """A pod, a Service or a node; `code` and `message` are those of the error that a watch ends with."""

    metadata: _Meta | None = None
    spec: _Spec | None = None
    status: _Status | str | None = None
    code: Any = None
    message: Any = None


class _ListMeta(_Shape, rename={"following": "continue"}):
    following: Any = None


class _List(_Shape):
    """A page of a list of pods or nodes; `following` is what asks for the next one."""

    metadata: _ListMeta | None = None
    items: list[_Object] | None = None


class _Event(_Shape):
    type: Any = None
    object: _Object | None = None


_events = msgspec.json.Decoder(_Event)
_objects = msgspec.json.Decoder(_Object)
_lists = msgspec.json.Decoder(_List)


def read_event(line: bytes) -> Any:
    """Decode one event of a watch of pods, Services or nodes: `type` and `object`, for `objects.get`."""
    return _read(_events, line)


def read_object(content: bytes) -> Any:
    """Decode a pod, a Service or a node, for `objects.get`. Raises ValueError if it is not JSON."""
    return _read(_objects, content)


def read_list(content: bytes) -> tuple[list[Any], str]:
    """Decode a page of pods or nodes: its objects, for `objects.get`, and what asks for the next one, empty at the end.

    Raises ValueError if it is no list.
    """
    try:
        found = _lists.decode(content)
    except msgspec.MsgspecError as error:
        raise ValueError("it is no list of objects") from error
    token = found.metadata.following if found.metadata else None
    return found.items or [], token if isinstance(token, str) else ""


def write(thing: Any) -> bytes:
    return msgspec.json.encode(thing)


def _read(decoder: msgspec.json.Decoder[Any], content: bytes) -> Any:
    try:
        return decoder.decode(content)
    except msgspec.MsgspecError:
        return json.loads(content)
