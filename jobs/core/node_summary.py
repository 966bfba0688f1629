"""What the nodes of a cluster hold, and what is free, idle or broken on them: derived from values alone. Pure.

A GPU is free if the node may take pods of Muster and neither Muster's own pods nor, where they are known, those of others
hold it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property


@dataclass(frozen=True)
class Held:
    """What one job holds of a node. `idle` and `broken` count its GPUs of which its ranks reported that."""

    job: int
    slots: int
    replicas: int = 1
    idle: int = 0
    broken: int = 0


@dataclass(frozen=True)
class NodeFacts:
    """One node with what is known of it. `others`: GPUs that pods of others hold, None where that is not known.

    `silence` is empty while it is ready, else why it is not; `failed_jobs`: how many it failed within a day, where
    verdicts make it suspect.
    """

    number: int
    name: str
    gpus: int = 0
    product: str = ""
    silence: str = ""
    silent_since: datetime | None = None
    is_cordoned: bool = False
    is_excluded: bool = False
    is_gone: bool = False
    failed_jobs: int = 0
    others: int | None = None
    troubles: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    levels: tuple[tuple[str, str], ...] = ()  # of the topology that queues' templates name: label and value
    held: tuple[Held, ...] = ()

    @cached_property
    def slots(self) -> int:
        """How many GPUs Muster's pods hold, which may be more than it offers by now."""
        return sum(one.slots for one in self.held)

    @cached_property
    def idle(self) -> int:
        return sum(one.idle for one in self.held)

    @cached_property
    def broken(self) -> int:
        return sum(one.broken for one in self.held)

    @cached_property
    def takes_pods(self) -> bool:
        """Whether new pods of Muster may run there, as far as the node's own state says it; taints depend on the job."""
        return not (self.silence or self.is_cordoned or self.is_excluded or self.is_gone)

    @cached_property
    def rest(self) -> int:
        """How many GPUs nobody holds, whether or not pods may use them now."""
        return max(0, self.gpus - self.slots - (self.others or 0))

    @cached_property
    def free(self) -> int:
        return self.rest if self.takes_pods else 0

    @cached_property
    def exceptions(self) -> tuple[tuple[str, str], ...]:
        """What is wrong or unusual, as (tone, words), the worst first."""
        found = [
            ("bad", "gone" if self.is_gone else ""),
            ("bad", "not ready" if self.silence and not self.is_gone else ""),
            ("bad", f"{self.broken} GPU{'s' * (self.broken > 1)} with Xid or ECC errors" if self.broken else ""),
            ("bad", f"failed {self.failed_jobs} jobs within a day" if self.failed_jobs else ""),
            *(("warn", one) for one in self.troubles),
            ("warn", "excluded" if self.is_excluded else ""),
            ("warn", "cordoned" if self.is_cordoned else ""),
            ("warn", f"{self.slots} GPUs held, and it offers {self.gpus}" if self.slots > self.gpus else ""),
        ]
        return tuple((tone, words) for tone, words in found if words)


@dataclass(frozen=True)
class Group:
    """The nodes with one product."""

    product: str
    nodes: int
    gpus: int
    held: int
    free: int
    largest: int


@dataclass(frozen=True)
class Summary:
    """All nodes of a cluster in numbers. `others` is None where it is not known on some node: then `free` is an upper bound.

    `out` are GPUs that nobody holds on nodes that take no pods; `largest`: the most that are free on one node.
    """

    nodes: int = 0
    gpus: int = 0
    held: int = 0
    others: int | None = 0
    idle: int = 0
    broken: int = 0
    out: int = 0
    free: int = 0
    largest: int = 0
    nodes_with_free: int = 0
    nodes_away: int = 0
    exceptions: int = 0
    groups: tuple[Group, ...] = field(default=())

    @property
    def sentence(self) -> str:
        """Return what is free: "8 free, no node has more than 2"."""
        if not self.free:
            return "None free"
        most = "At most " if self.others is None else ""
        if self.nodes_with_free == 1:
            return f"{most}{self.free} free, {'all ' * (self.free > 1)}on one node"
        return f"{most}{self.free} free, no node has more than {self.largest}"


def summary(nodes: Sequence[NodeFacts]) -> Summary:
    """Return the numbers of these nodes; those that are gone do not count."""
    there = [one for one in nodes if not one.is_gone]
    with_gpus = [one for one in there if one.gpus]
    is_known = all(one.others is not None for one in with_gpus)
    products = sorted({one.product for one in with_gpus})
    return Summary(
        nodes=len(there),
        gpus=sum(one.gpus for one in there),
        held=sum(one.slots for one in there),
        others=sum(one.others or 0 for one in there) if is_known else None,
        idle=sum(one.idle for one in there),
        broken=sum(one.broken for one in there),
        out=sum(one.rest for one in there if not one.takes_pods),
        free=sum(one.free for one in there),
        largest=max((one.free for one in there), default=0),
        nodes_with_free=sum(bool(one.free) for one in there),
        nodes_away=sum(not one.takes_pods for one in there),
        exceptions=sum(bool(one.exceptions) for one in there),
        groups=tuple(_group(name, [one for one in with_gpus if one.product == name]) for name in products),
    )


def _group(product: str, nodes: Sequence[NodeFacts]) -> Group:
    return Group(
        product, len(nodes), sum(one.gpus for one in nodes), sum(one.slots for one in nodes),
        sum(one.free for one in nodes), max(one.free for one in nodes),
    )  # fmt: skip
