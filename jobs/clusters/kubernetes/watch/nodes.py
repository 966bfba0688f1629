"""Find lost nodes: gone, or not ready for longer than the cluster's settings allow.

The time is measured here, from when we saw it, and not by the node's timestamps: clocks differ, and pods are
force-deleted as a result. Reading nodes needs a right of its own (docs/kubernetes.md); without it no node is ever lost.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..api.objects import condition, get, version, words
from .cache import Picture


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `silence` is empty while it is ready, else why it is not."""

    name: str
    uid: str
    version: int
    silence: str = ""


def read_node(thing: Any) -> Node | None:
    meta = get(thing, "metadata")
    name, uid = get(meta, "name"), get(meta, "uid")
    if not isinstance(name, str) or not isinstance(uid, str):
        return None
    ready = condition(get(thing, "status"), "Ready")
    if get(ready, "status") == "True":
        return Node(name, uid, version(meta))
    message = words(get(ready, "message"), most=200) or words(get(ready, "reason"), most=100)
    return Node(name, uid, version(meta), message or "it has not reported that it is ready")


def node_key(node: Node) -> str:
    return node.name


class Nodes:
    """The state of all nodes over time. `clock` gives seconds since the epoch."""

    def __init__(self, *, lost_seconds: float, fresh_seconds: float, clock: Callable[[], float]):
        self.picture: Picture[str, Node] = Picture(node_key, clock=clock)
        self._lost_seconds, self._fresh_seconds, self._clock = lost_seconds, fresh_seconds, clock
        # by name: the UID that is silent, or "gone", and when we saw it first
        self._since: dict[str, tuple[str, float]] = {}

    def changed(self, name: str) -> None:
        """Update a node's silence after an event of the watch."""
        node = next(iter(self.picture.of(name)), None)
        if node is not None and not node.silence:
            self._since.pop(name, None)
            return
        which = "gone" if node is None else node.uid
        if self._since.get(name, ("", 0.0))[0] != which:
            self._since[name] = (which, self._clock())

    def lost(self, names: Iterable[str]) -> dict[str, str]:
        """Return which of these nodes are lost, with the reason.

        Empty if the cached view is old or all nodes are silent at once: then it is the cluster that has lost its nodes.
        """
        now = self._clock()
        if (self.picture.as_of or 0.0) < now - self._fresh_seconds:
            return {}
        found = {name: words for name in set(names) if name and (words := self._words(name, now))}
        return {} if found and self._is_everybody_silent() else found

    def _words(self, name: str, now: float) -> str:
        node = next(iter(self.picture.of(name)), None)
        if node is not None and not node.silence:
            return ""
        _, since = self._since.setdefault(name, ("gone", now))
        if now - since < self._lost_seconds:
            return ""
        if node is None:
            return "is not in the cluster any more"
        return f"does not answer for more than {self._lost_seconds:.0f} s: {node.silence}"

    def _is_everybody_silent(self) -> bool:
        nodes = self.picture.everything()
        return len(nodes) > 1 and all(node.silence for node in nodes)
