"""Decide whether any node could ever take a replica: by total capacity, whatever uses it now. Pure.

Refuses only what surely never fits. Cordoned or tainted nodes count, since that may change; nodes excluded by
NODE_SELECTOR do not.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from common.errors import Problem

from ..api.objects import get
from ..build.site import Site

# apimachinery, resource.Quantity
_SUFFIXES = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    **{name: Fraction(1000) ** power for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": Fraction(1024) ** power for power, name in enumerate("KMGTPE", 1)},
}  # fmt: skip
_QUANTITY = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


@dataclass(frozen=True)
class Size:
    """One node's capacity for pods. Amounts as the node reports them."""

    amounts: Mapping[str, str]
    labels: Mapping[str, str]

    def has(self, name: str, amount: str) -> bool:
        return quantity(self.amounts.get(name, "0")) >= quantity(amount)


def read_size(thing: Any) -> Size:
    return Size(_texts(get(thing, "status", "allocatable")), _texts(get(thing, "metadata", "labels")))


def quantity(text: str) -> Fraction:
    """Parse a quantity; 0 if it is malformed: the cluster's own error appears when a pod is created from it."""
    found = _QUANTITY.fullmatch(text.strip())
    return Fraction(found[1]) * _SUFFIXES[found[2] or ""] if found else Fraction(0)


def placement_problem(
    *, slots: int, nodes: int, resource: str, site: Site, sizes: Iterable[Size], own_nodes: int = 0
) -> Problem | None:
    """Return why the nodes can never take this job; None if they can, or if no nodes are known.

    `own_nodes`: how many replicas must run at once, each with a node to itself; 0 where they may share.
    """
    there = [
        size for size in sizes if all(size.labels.get(name) == value for name, value in site.node_selector.items())
    ]
    if not there or site.more_nodes:
        return None
    fixed = {**site.limits, **site.requests}  # without a request the limit is the request, as in Kubernetes
    able = [size for size in there if all(size.has(name, amount) for name, amount in fixed.items())]
    if not able:
        return _too_large(fixed, there)
    device = site.devices.get(resource)
    most = max(int(quantity(size.amounts.get(device, "0"))) for size in able) if device else slots
    if slots <= most:
        return _too_few(slots, own_nodes, device, able=able) if device else None
    way_out = _nearest(slots * nodes, most) if most else "choose another queue"
    return Problem(
        "nproc_per_node", slots, f"needs {slots} {device} on one node, and the largest node has {most}; {way_out}"
    )  # fmt: skip


def _too_few(slots: int, own_nodes: int, device: str, *, able: list[Size]) -> Problem | None:
    large = sum(size.has(device, str(slots)) for size in able)
    if own_nodes <= large:
        return None
    return Problem(
        "nodes", own_nodes, f"needs {own_nodes} nodes with {slots} {device} each, and the cluster has {large}; "
        f"lower nodes to {large}",
    )  # fmt: skip


def _nearest(total: int, most: int) -> str:
    """Suggest the same number of slots on nodes that exist."""
    per_node = next(count for count in range(min(most, total), 0, -1) if total % count == 0)
    return f"use nproc_per_node={per_node} on nodes={total // per_node}"


def _too_large(fixed: Mapping[str, str], there: list[Size]) -> Problem:
    """Report the first amount that no node has; else that no single node has all of them."""
    for name, amount in fixed.items():
        if not any(size.has(name, amount) for size in there):
            largest = max((size.amounts.get(name, "0") for size in there), key=quantity)
            return Problem(
                f"OPTIONS.REQUESTS.{name}", amount,
                f"is what the cluster's settings request for each replica, and the largest node has {largest}; "
                "choose another queue, or have the setting lowered",
            )  # fmt: skip
    asked = ", ".join(f"{name} {amount}" for name, amount in fixed.items())
    return Problem(
        "OPTIONS.REQUESTS", asked, "does not fit on any node; choose another queue, or have the setting lowered"
    )


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(one) for name, one in value.items()} if isinstance(value, Mapping) else {}
