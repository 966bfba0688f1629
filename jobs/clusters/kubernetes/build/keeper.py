"""The pod that looks after one claim for a moment: deletes folders of removed jobs, and says how full it is. Pure.

It is no replica: it has no run, no token and no secret, and mounts nothing but the agent's program and the claim.
"""

import json
from typing import Any

from jobs.core.keeping import Errand

from . import labels, placement
from .manifests import PYTHON, pod_security
from .mounts import AGENT, Manifest
from .site import Site

CONTAINER = "keeper"
KEPT = "/muster/kept"  # where the claim is mounted
WORK_SECONDS = 240  # for deleting; what is left then is up to the next keeper
POD_SECONDS = 300  # from when a node has it; the node ends it then
RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}


def pod(errand: Errand, *, site: Site, agent: str) -> Manifest:
    """Return the pod. `agent`: the name of the agent's ConfigMap. Where it only looks, it mounts the claim read-only."""
    shape = site.shape
    path, is_look = errand.path.strip("/"), not errand.folders
    told = json.dumps({"folders": list(errand.folders), "seconds": WORK_SECONDS})
    mount: dict[str, Any] = {"name": "kept", "mountPath": KEPT}
    claim: dict[str, Any] = {"claimName": errand.claim}
    if path:  # nothing else of the claim is within its reach
        mount["subPath"] = path
    if is_look:  # by the claim too: then the node changes no group of its files
        mount["readOnly"] = claim["readOnly"] = True
    container = {
        "name": CONTAINER,
        "image": shape.image,
        "imagePullPolicy": shape.pull_policy,
        "command": [PYTHON, f"{AGENT}/agent.pyz", "--keep", KEPT],
        "env": [{"name": "MUSTER_KEEP", "value": told}],
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "agent", "mountPath": AGENT, "readOnly": True}, mount],
    }
    where = placement.of_shape(shape)
    wanted = {name: where[name] for name in ("nodeSelector", "tolerations", "imagePullSecrets") if name in where}
    metadata: dict[str, Any] = {
        "name": labels.keeper(errand.claim),
        "labels": {**shape.labels, labels.KEEPER: errand.digest},
    }
    if shape.annotations:
        metadata["annotations"] = dict(shape.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": POD_SECONDS,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(site),
            "containers": [container],
            "volumes": [
                {"name": "agent", "configMap": {"name": agent, "defaultMode": 0o555}},
                {"name": "kept", "persistentVolumeClaim": claim},
            ],
            **wanted,
        },
    }
