"""The OPTIONS with which an installation uses the real node, and its two claims.

The claims are this environment's packages, and the job folder.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from . import image, network
from .node import LENT, Node
from .plane import ControlPlane
from .world import NAMESPACE, settle


@contextmanager
def raised(
    *, has_services: bool = False, has_policies: bool = False, audits: Sequence[str] = ()
) -> Iterator[tuple[ControlPlane, Node]]:
    """Run a cluster with one real node and nothing else; `node.cable` connects it to this machine.

    `has_services`: with a kube-proxy, so that pods reach each other by Services. `has_policies`: network policies are
    enforced. `audits`: whose requests the API server writes down.
    """
    with ExitStack() as at_the_end:
        cable = network.lay()
        at_the_end.callback(cable.remove)
        plane = ControlPlane(address=cable.host, audits=audits)
        at_the_end.callback(plane.stop)
        plane.start()
        node = Node(plane, cable, has_services=has_services, has_policies=has_policies)
        at_the_end.callback(node.stop)
        node.start()
        yield plane, node


def lend(plane: ControlPlane, node: Node) -> dict[str, Any]:
    """Return the OPTIONS of a cluster of real pods, except CONTROL_URL: Muster itself supplies that address."""
    kubeconfig = settle(plane, NAMESPACE)
    with plane.client() as admin:
        claim(admin, "packages", path=LENT)
        claim(admin, "jobs", path=str(node.jobs))
    return {
        "KUBECONFIG": str(kubeconfig), "NAMESPACE": NAMESPACE, "IMAGE": image.NAME, "PULL_POLICY": "Never",
        "JOB_CLAIM": "jobs", "JOB_CLAIM_PATH": "", "CLAIMS": {"packages": "packages"},
    }  # fmt: skip


def claim(admin: httpx.Client, name: str, *, path: str, namespace: str = NAMESPACE) -> None:
    """Create a claim on a folder of the node that many pods may mount."""
    what = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": name}
    size = {"storage": "1Gi"}
    claim = {"metadata": {"name": name}, "spec": {**what, "resources": {"requests": size}}}
    volume = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteMany"], "storageClassName": "", "capacity": size, "hostPath": {"path": path},
            "claimRef": {"namespace": namespace, "name": name},
        },
    }  # fmt: skip
    for url, thing in (
        ("/api/v1/persistentvolumes", volume), (f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
    ):  # fmt: skip
        answer = admin.post(url, json=thing)
        assert answer.status_code == 201, answer.text
