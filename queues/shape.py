"""What a replica's pod is, whatever runs in it: image, resources, placement, labels. Pure.

The same type describes one layer (the cluster's own settings, a queue's template, a job, one role of it), where what is
left empty says nothing, and their sum, from which manifests, the plan and the placement check are made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True)
class ReplicaShape:
    """Amounts as Kubernetes quantities; resources by their names in Kubernetes, for one replica."""

    image: str = ""
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    shm: str = ""  # the most that /dev/shm holds; it counts as the replica's memory
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    scheduler: str = ""
    priority_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    topology: Mapping[str, str] = field(
        default_factory=dict
    )  # `require` or `prefer`: the label of a level that replicas share
    service_account: str = ""  # empty: the namespace's default, whose token is not mounted
    device: str = ""  # the resource of a node of which each slot takes one, such as nvidia.com/gpu
    pod_security: Mapping[str, Any] = field(default_factory=dict)  # securityContext of the pod
    security: Mapping[str, Any] = field(default_factory=dict)  # and of the replica's container
    host_network: bool = False
    # Containers, volumes and mounts as Kubernetes writes them. A sidecar ends with the replica.
    init_containers: tuple[Mapping[str, Any], ...] = ()
    sidecars: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    working_dir: str = ""  # where the command starts: within the job's code, or an absolute path of the image

    @property
    def needs(self) -> dict[str, str]:
        """What a node must have free for it. Without a request, the limit is the request, as in Kubernetes."""
        return {**self.limits, **self.requests}


def of_resources(**amounts: str) -> ReplicaShape:
    """Return a layer that asks for these amounts and is limited to them."""
    given = {name: amount for name, amount in amounts.items() if amount}
    return ReplicaShape(requests=given, limits=given)


def merge(*layers: ReplicaShape) -> ReplicaShape:
    """Return the sum of layers, each over the ones before it.

    A text of a later layer replaces an earlier one, a mapping replaces single entries, and tolerations and pull secrets
    are added. Of a node selector earlier entries stay: a job can narrow down where it runs, and not leave its queue's nodes.
    """
    found = ReplicaShape()
    for layer in layers:
        changes: dict[str, Any] = {}
        for one in fields(ReplicaShape):
            below, above = getattr(found, one.name), getattr(layer, one.name)
            if not above:
                continue
            if isinstance(below, Mapping):
                changes[one.name] = {**above, **below} if one.name == "node_selector" else {**below, **above}
            elif isinstance(below, tuple):
                changes[one.name] = (*below, *(entry for entry in above if entry not in below))
            else:
                changes[one.name] = above
        found = replace(found, **changes)
    return found


def conflicts(below: ReplicaShape, above: ReplicaShape) -> dict[str, tuple[str, str]]:
    """Return the entries of a node selector in which the layer above contradicts the ones below: (wanted, given)."""
    return {
        key: (value, below.node_selector[key])
        for key, value in above.node_selector.items()
        if below.node_selector.get(key, value) != value
    }
