"""The two pods of a cluster's check: the first says what it finds and listens, the second connects to it. Pure.

They are no replicas: they have no run, no token and no secret, and mount nothing but the agent's program.
"""

import ipaddress
import json
from typing import Any
from urllib.parse import urlsplit

from jobs.core.probing import LATE, Probe
from queues.shape import merge

from . import labels, placement
from .manifests import PYTHON, among_themselves, pod_security
from .mounts import AGENT, Manifest
from .site import Site

CONTAINER = "probe"
FIRST, SECOND = "first", "second"
PORT = 29500  # where torchrun's ranks meet: what forbids it here forbids it there
REACH_SECONDS = 20.0  # a network plug-in may need a moment for a pod that is new
API_SERVER = "kubernetes.default.svc"
PACKAGES = ("torch", "ray", "torchmonarch")  # distributions that frameworks run with
RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}


def names(site: Site) -> list[str]:
    """Return the names that a pod has to resolve: of the API server, and of the control plane if it is not an address."""
    host = urlsplit(site.control_url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return [API_SERVER, host] if host else [API_SERVER]
    return [API_SERVER]


def told(probe: Probe, part: str, *, site: Site, peer: str = "") -> dict[str, Any]:
    """Return what a pod is asked (agent/errands/probe.py). `peer`: the address of the first one, for the second."""
    asked = {"part": part, "word": f"muster-check-{probe.uid}", "port": PORT}
    if part == SECOND:
        return {**asked, "peer": peer, "seconds": REACH_SECONDS}
    return {**asked, "url": site.control_url, "ca": site.control_ca, "names": names(site), "packages": list(PACKAGES)}


def policy(site: Site) -> Manifest:
    """Return the policy of all pods of checks in a namespace: they reach each other, DNS and the control plane."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "muster-check"},
        "spec": among_themselves({"matchExpressions": [{"key": labels.CHECK, "operator": "Exists"}]}, site),
    }


def pod(probe: Probe, part: str, *, site: Site, agent: str, peer: str = "") -> Manifest:
    """Return one of the pods. `agent`: the name of the agent's ConfigMap. The second prefers another node than the first."""
    shape = merge(site.shape, probe.shape)
    container = {
        "name": CONTAINER,
        "image": shape.image,
        "imagePullPolicy": shape.pull_policy,
        "command": [PYTHON, f"{AGENT}/agent.pyz", "--probe"],
        "env": [{"name": "MUSTER_PROBE", "value": json.dumps(told(probe, part, site=site, peer=peer))}],
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "agent", "mountPath": AGENT, "readOnly": True}],
    }
    where = placement.of_shape(shape)
    wanted = {name: where[name] for name in ("nodeSelector", "tolerations", "imagePullSecrets") if name in where}
    mine = {labels.CHECK: probe.uid}
    elsewhere = {"labelSelector": {"matchLabels": mine}, "topologyKey": placement.NODE}
    apart = {placement.PREFERRED: [{"weight": placement.MOST_WEIGHT, "podAffinityTerm": elsewhere}]}
    metadata: dict[str, Any] = {
        "name": labels.check(probe.uid, part),
        "labels": {**shape.labels, **mine, labels.PART: part},
    }
    if shape.annotations:
        metadata["annotations"] = dict(shape.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(LATE.total_seconds()),
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(site),
            "affinity": {"podAntiAffinity": apart},
            "containers": [container],
            "volumes": [{"name": "agent", "configMap": {"name": agent, "defaultMode": 0o555}}],
            **wanted,
        },
    }
