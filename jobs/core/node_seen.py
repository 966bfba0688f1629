"""Nodes as a cluster lists them, and what is worth remembering of how one changed since the last look. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MOST_NAME = 253
MOST_WORDS = 500  # of one change
MOST_TEXTS = 20  # taints of a node, and troubles


class ChangeKind(StrEnum):
    """What a row of a node's history says; the words beside it give the rest."""

    APPEARED = "appeared"
    GONE = "gone"
    NOT_READY = "not_ready"
    READY = "ready"
    CORDONED = "cordoned"
    UNCORDONED = "uncordoned"
    TROUBLE = "trouble"  # a condition such as DiskPressure
    RECOVERED = "recovered"
    DEVICES = "devices"  # it offers another number of them
    TAINTED = "tainted"
    UNTAINTED = "untainted"


@dataclass(frozen=True)
class NodeSeen:
    """One node. `silence` is empty while it is ready, else why it is not.

    `devices` are those that pods may be given, by the name of their resource. `others`: how many of them are held by
    pods that are not Muster's; None where that is not known. `taints` are in words, `gpu=true:NoSchedule`, without those
    that only repeat that it is cordoned or silent.
    """

    name: str
    silence: str = ""
    is_cordoned: bool = False
    devices: Mapping[str, int] = field(default_factory=dict)
    product: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    others: int | None = None

    @property
    def gpus(self) -> int:
        return sum(self.devices.values())


@dataclass(frozen=True)
class NodeChange:
    kind: ChangeKind
    words: str = ""


def changes(before: NodeSeen | None, now: NodeSeen) -> list[NodeChange]:
    """Return what changed between two looks at a node that people want to find later; None: it was not there.

    What its labels say, and what pods of others hold, is no change of the node.
    """
    if before is None:
        found = [NodeChange(ChangeKind.APPEARED, offers(now.devices))]
        before = NodeSeen(now.name, devices=now.devices, taints=now.taints)
    else:
        found = []
    if bool(before.silence) != bool(now.silence):
        kind = ChangeKind.NOT_READY if now.silence else ChangeKind.READY
        found.append(NodeChange(kind, now.silence))
    if before.is_cordoned != now.is_cordoned:
        found.append(NodeChange(ChangeKind.CORDONED if now.is_cordoned else ChangeKind.UNCORDONED))
    found += _came_and_went(before.troubles, now.troubles, came=ChangeKind.TROUBLE, went=ChangeKind.RECOVERED)
    if dict(before.devices) != dict(now.devices):
        found.append(NodeChange(ChangeKind.DEVICES, f"{offers(now.devices)}; before: {offers(before.devices)}"))
    found += _came_and_went(before.taints, now.taints, came=ChangeKind.TAINTED, went=ChangeKind.UNTAINTED)
    return [NodeChange(one.kind, one.words[:MOST_WORDS]) for one in found]


def offers(devices: Mapping[str, int]) -> str:
    """Return "8 nvidia.com/gpu", or "no GPUs"."""
    return ", ".join(f"{count} {name}" for name, count in sorted(devices.items()) if count) or "no GPUs"


def _came_and_went(
    before: Iterable[str], now: Iterable[str], *, came: ChangeKind, went: ChangeKind
) -> list[NodeChange]:
    new, old = sorted(set(now) - set(before)), sorted(set(before) - set(now))
    pairs = ((came, new), (went, old))
    return [NodeChange(kind, ", ".join(texts)) for kind, texts in pairs if texts]
