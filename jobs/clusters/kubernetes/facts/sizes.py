"""Decide whether nodes could ever take a job: every role with its own amounts, by total capacity, whatever uses it now. Pure.

Refuses only what surely never fits. Cordoned or tainted nodes count, since that may change; nodes excluded by a node
selector do not.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.errors import Problem
from common.text import nodes_listed
from jobs.clusters import Placement
from jobs.core.plan import Role
from jobs.core.pod_fields import taint
from queues.quantities import read
from queues.shape import ReplicaShape, conflicts

from ..api.objects import get
from ..build.manifests import devices_of
from ..build.site import Site

SHOWN_NODES = 3
KEPT_AWAY = ("NoSchedule", "NoExecute")  # effects of taints


@dataclass(frozen=True)
class Size:
    """One node's capacity for pods, its labels, and its taints that keep pods away. Amounts as the node reports them."""

    amounts: Mapping[str, str]
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...] = ()
    name: str = ""

    def has(self, name: str, amount: str) -> bool:
        return read(self.amounts.get(name, "0")) >= read(amount)

    def has_all(self, amounts: Mapping[str, str]) -> bool:
        return all(self.has(name, amount) for name, amount in amounts.items())

    def is_selected(self, selector: Mapping[str, str]) -> bool:
        return all(self.labels.get(name) == value for name, value in selector.items())

    def room(self, amounts: Mapping[str, str]) -> int | None:
        """Return how many replicas with these amounts it takes when it is empty; None where nothing bounds them."""
        counts = [
            int(read(self.amounts.get(name, "0")) / read(amount)) for name, amount in amounts.items() if read(amount)
        ]
        if "pods" in self.amounts:
            counts.append(int(read(self.amounts["pods"])))
        return min(counts, default=None)


@dataclass(frozen=True)
class Need:
    """What the replicas of one role need. `nodes`: those that match its selector, by number."""

    role: Role
    replicas: int  # that must run at once
    amounts: Mapping[str, str]
    devices: Mapping[str, str]  # those of the amounts that the job counts as slots
    shape: ReplicaShape
    has_own_nodes: bool  # each needs a node to itself, as far as others like it are concerned
    nodes: Mapping[int, Size]

    @property
    def able(self) -> dict[int, Size]:
        return {number: node for number, node in self.nodes.items() if node.has_all(self.amounts)}

    def field(self, name: str) -> str:
        """Return the field that an amount comes from."""
        return f"roles.{self.role.name}.{name}" if name in self.role.shape.needs else f"OPTIONS.REQUESTS.{name}"


def read_size(thing: Any) -> Size:
    taints = get(thing, "spec", "taints")
    found = (_texts(one) for one in (taints if isinstance(taints, list) else []))
    return Size(
        _texts(get(thing, "status", "allocatable")), _texts(get(thing, "metadata", "labels")),
        tuple(one for one in found if one.get("effect") in KEPT_AWAY), str(get(thing, "metadata", "name") or ""),
    )  # fmt: skip


def placement(
    roles: Sequence[Role],
    *,
    resource: str,
    node_slots: int,
    site: Site,
    nodes: Iterable[Size],
    excluded: Collection[str] = (),
) -> Placement:
    """Return the first reason why the nodes can never take these roles at once, and what keeps them from it today.

    Nothing if no nodes are known. `excluded` names nodes that administrators excluded, which they may readmit.
    """
    for role in roles:
        for key, (wanted, given) in conflicts(site.shape, role.shape).items():
            words = f"is {given} for every job of this cluster; remove it"
            return Placement(Problem(f"roles.{role.name}.node_selector.{key}", wanted, words))
    known = list(nodes)
    if not known or site.more_nodes:
        return Placement()
    found = _of_nodes(roles, known, resource=resource, node_slots=node_slots, site=site)
    rest = [node for node in known if node.name not in excluded]
    if found.problem or len(rest) == len(known):
        return found
    today = _of_nodes(roles, rest, resource=resource, node_slots=node_slots, site=site)
    out = sorted(node.name for node in known if node.name in excluded)
    if not rest or today.problem:
        why = f": {today.problem.message}" if today.problem else ""
        return Placement(
            warnings=(f"without {nodes_listed(out, SHOWN_NODES)}, which administrators excluded, it does not fit{why}",)
        )
    return today


def _of_nodes(roles: Sequence[Role], nodes: list[Size], *, resource: str, node_slots: int, site: Site) -> Placement:
    needs = [_need(role, resource, node_slots, site=site, nodes=nodes) for role in roles]
    problems = (
        *(_problem_alone(need) for need in needs if need.nodes),
        *_problems_together([n for n in needs if n.nodes]),
    )
    problem = next((one for one in problems if one), None)
    return Placement(problem, () if problem else tuple(words for need in needs for words in _warnings(need)))


def _need(role: Role, resource: str, node_slots: int, *, site: Site, nodes: list[Size]) -> Need:
    whole = role.on(site.shape).shape
    devices = devices_of(resource, role, site)
    return Need(
        role, role.least or role.replicas, {**whole.needs, **devices}, devices, whole,
        has_own_nodes=bool(devices) and role.slots == node_slots,
        nodes={number: node for number, node in enumerate(nodes) if node.is_selected(whole.node_selector)},
    )  # fmt: skip


def _problem_alone(need: Need) -> Problem | None:
    """Return why the role does not fit even where it is alone."""
    others = {name: amount for name, amount in need.amounts.items() if name not in need.devices}
    with_others = [node for node in need.nodes.values() if node.has_all(others)]
    if not with_others:
        return _too_large(need, others)
    for device, amount in need.devices.items():
        most = max(int(read(node.amounts.get(device, "0"))) for node in with_others)
        if need.role.slots > most:
            total = need.role.slots * need.role.replicas
            way_out = _nearest(total, most) if most else "choose another queue"
            return Problem(
                "nproc_per_node", need.role.slots,
                f"needs {amount} {device} on one node, and the largest node has {most}; {way_out}",
            )  # fmt: skip
    return _too_many([need])


def _problems_together(needs: list[Need]) -> Iterable[Problem | None]:
    """Yield why roles that fit alone do not fit together: nodes of their own, then sums over all nodes they may use."""
    yield _too_many([need for need in needs if need.has_own_nodes])
    nodes = {number: node for need in needs for number, node in need.nodes.items()}.values()
    for name in sorted({name for need in needs for name in need.amounts}):
        wanted = sum(read(need.amounts.get(name, "0")) * need.replicas for need in needs)
        there = sum(read(node.amounts.get(name, "0")) for node in nodes)
        if wanted > there:
            largest = max(needs, key=lambda need: read(need.amounts.get(name, "0")) * need.replicas)
            parts = " and ".join(
                f"{need.replicas} x {need.amounts[name]} for {need.role.name}" for need in needs if name in need.amounts
            )
            field = "nodes" if name in largest.devices else largest.field(name)
            words = (
                f"needs {name} {parts} at once, which is more than all nodes have together; lower it, or lower nodes"
            )
            yield Problem(field, largest.amounts[name], words)


def _too_many(needs: list[Need]) -> Problem | None:
    """Return why so many replicas never run at once: each with a node of its own, or as many as each node has room for."""
    if not needs:
        return None
    able = list({number: node for need in needs for number, node in need.able.items()}.values())
    wanted = sum(need.replicas for need in needs)
    what = ", ".join(f"{name} {amount}" for name, amount in needs[0].amounts.items())
    if needs[0].has_own_nodes:
        devices = " and ".join(f"{amount} {name}" for name, amount in needs[0].devices.items())
        if wanted <= len(able):
            return None
        words = f"needs {wanted} nodes with {devices} each, and the cluster has {len(able)}; lower nodes to {len(able)}"
        return Problem("nodes", wanted, words)
    rooms = [node.room(needs[0].amounts) for node in able]
    if None in rooms or wanted <= (room := sum(one for one in rooms if one is not None)):
        return None
    name = needs[0].role.name
    words = f"needs {wanted} {name} with {what} each at once, and the nodes have room for {room}; lower nodes or the amounts"
    return Problem("nodes", wanted, words)


def _warnings(need: Need) -> Iterable[str]:
    name = need.role.name
    if not need.nodes:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(need.shape.node_selector.items()))
        yield f"no node has the label{'s' * (len(need.shape.node_selector) > 1)} {wanted} today; {name} waits until one has"
        return
    able = list(need.able.values())
    kept = [[one for one in node.taints if not _is_tolerated(one, need.shape.tolerations)] for node in able]
    if able and all(kept):
        yield f"every node that {name} fits on keeps its pods away, such as by the taint {taint(kept[0][0])}; if that is meant for such jobs, add it to tolerations"


def _is_tolerated(taint: Mapping[str, str], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        one.get("effect") in (None, "", taint["effect"])
        and (not one.get("key") or one["key"] == taint.get("key"))
        and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""))
        for one in tolerations
    )


def _nearest(total: int, most: int) -> str:
    """Suggest the same number of slots on nodes that exist."""
    per_node = next(count for count in range(min(most, total), 0, -1) if total % count == 0)
    return f"use nproc_per_node={per_node} on nodes={total // per_node}"


def _too_large(need: Need, amounts: Mapping[str, str]) -> Problem:
    """Report the first amount that no node has; else that no single node has all of them."""
    for name, amount in amounts.items():
        if not any(node.has(name, amount) for node in need.nodes.values()):
            largest = max((node.amounts.get(name, "0") for node in need.nodes.values()), key=read)
            if name in need.role.shape.needs:
                words = f"is more than any node has; the largest has {largest}, so lower it"
            else:
                words = (
                    f"is what the cluster's settings request for each replica, and the largest node has {largest}; "
                    "choose another queue, or have the setting lowered"
                )
            return Problem(need.field(name), amount, words)
    asked = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
    own = next((name for name in amounts if name in need.role.shape.needs), "")
    if own:
        return Problem(need.field(own), asked, "does not fit on any node; lower one of them")
    return Problem(
        "OPTIONS.REQUESTS", asked, "does not fit on any node; choose another queue, or have the setting lowered"
    )


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(one) for name, one in value.items()} if isinstance(value, Mapping) else {}
