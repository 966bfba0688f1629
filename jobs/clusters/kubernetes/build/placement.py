"""Which nodes a pod may run on, and which it should: selectors, siblings of its attempt, topology, nodes to avoid. Pure."""

from collections.abc import Mapping
from typing import Any

from jobs.core.plan import Plan, Role
from queues.shape import ReplicaShape

from . import labels
from .mounts import Manifest
from .site import Site

NODE = "kubernetes.io/hostname"  # the well-known label with a node's name
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
MOST_WEIGHT = 100


def of_attempt(plan: Plan, role: Role, site: Site) -> Manifest:
    """Return affinity and spread of a pod: towards its siblings, away from nodes that failed the job, and its shape's own."""
    spec: Manifest = {}
    if sum(one.replicas for one in plan.roles) > 1:
        spec = _spread(plan, role, site)
        if role.shape.topology:
            spec["affinity"] = _joined(spec.get("affinity", {}), _topology(plan, role.shape.topology))
    if plan.avoided_nodes:
        spec["affinity"] = _joined(spec.get("affinity", {}), _away_from(plan.avoided_nodes))
    if role.shape.affinity:
        spec["affinity"] = _joined(spec.get("affinity", {}), role.shape.affinity)
    if plan.excluded_nodes:
        spec["affinity"] = _without(spec.get("affinity", {}), plan.excluded_nodes)
    return spec


def _topology(plan: Plan, wanted: Mapping[str, str]) -> Manifest:
    """Return the affinity by which the pods of an attempt share a level, such as a rack. The first of them may choose it."""
    siblings = {"labelSelector": {"matchLabels": labels.of_attempt(plan.run, plan.attempt)}}
    found: dict[str, list[Any]] = {}
    if level := wanted.get("require"):
        found[REQUIRED] = [{**siblings, "topologyKey": level}]
    if level := wanted.get("prefer"):
        found[PREFERRED] = [{"weight": MOST_WEIGHT, "podAffinityTerm": {**siblings, "topologyKey": level}}]
    return {"podAffinity": found}


def _away_from(nodes: tuple[str, ...]) -> Manifest:
    """Return an affinity that prefers other nodes: where there are no others, the job is better tried there than not at all."""
    others = {"matchFields": _others_than(nodes)}
    return {"nodeAffinity": {PREFERRED: [{"weight": MOST_WEIGHT, "preference": others}]}}


def _without(affinity: Mapping[str, Any], nodes: tuple[str, ...]) -> Manifest:
    """Return the affinity with these nodes ruled out. Of its terms any one may match, so each has to rule them out."""
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    terms = (of_nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchFields": [*term.get("matchFields", []), *_others_than(nodes)]} for term in terms]
    return {**affinity, "nodeAffinity": {**of_nodes, REQUIRED: {"nodeSelectorTerms": terms}}}


def _others_than(nodes: tuple[str, ...]) -> list[Manifest]:
    """Return requirements that all have to hold. By name, as pods report it: a node's label `hostname` may differ from it."""
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]


def of_shape(shape: ReplicaShape) -> Manifest:
    wanted: Manifest = {
        "nodeSelector": dict(shape.node_selector),
        "tolerations": [dict(one) for one in shape.tolerations],
        "schedulerName": shape.scheduler,
        "priorityClassName": shape.priority_class,
        "imagePullSecrets": [{"name": name} for name in shape.pull_secrets],
    }
    return {name: value for name, value in wanted.items() if value}


def _spread(plan: Plan, role: Role, site: Site) -> Manifest:
    """Prefer separate nodes for replicas of an attempt, and require one for each replica that takes all devices of a node.

    Beside one of those a role without devices may run, such as Ray's head or Monarch's controller. A preference costs the
    scheduler no more than its default for pods of a Service, which it replaces.
    """
    siblings: Manifest = {"labelSelector": {"matchLabels": labels.of_attempt(plan.run, plan.attempt)}}
    if plan.resource in site.devices and plan.is_whole_node(role):
        whole = sorted(one.name for one in plan.roles if plan.is_whole_node(one))
        if len(whole) < len(plan.roles):
            siblings["labelSelector"]["matchExpressions"] = [{"key": labels.ROLE, "operator": "In", "values": whole}]
        term = {**siblings, "topologyKey": NODE}
        return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    prefer = {"maxSkew": 1, "topologyKey": NODE, "whenUnsatisfiable": "ScheduleAnyway", **siblings}
    return {"topologySpreadConstraints": [prefer]}


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> Manifest:
    """Return both affinities: lists of their terms are added."""
    found = dict(first)
    for name, value in second.items():
        there = found.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            found[name] = _joined(there, value)
        elif isinstance(there, list) and isinstance(value, list):
            found[name] = [*there, *value]
        else:
            found[name] = value
    return found
