"""What the control plane is filled with: nodes that are not there, a namespace, and the account that Muster has."""

import re
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from .elsewhere import Elsewhere
from .plane import ControlPlane

NAMESPACE = "muster-jobs"
GPUS = 8
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "kubernetes.md"
# Kubernetes itself then refuses what is not restricted.
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
RBAC = "apis/rbac.authorization.k8s.io/v1"
PATHS = {"ServiceAccount": "api/v1", "Role": RBAC, "RoleBinding": RBAC}
PLURALS = {"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings"}


def fill(plane: ControlPlane, *, nodes: int) -> Path:
    """Nodes, and the namespace of the document. Returns the kubeconfig of its account."""
    with plane.client() as client:
        for number in range(nodes):
            _made(client.post("/api/v1/nodes", json=node(f"fake-{number}")))
    return settle(plane, NAMESPACE)


def settle(plane: ControlPlane | Elsewhere, namespace: str) -> Path:
    """A namespace and its account. Returns the account's kubeconfig."""
    with plane.client() as client:
        make_namespace(client, namespace)
        for thing in account_objects(namespace):
            kind = thing["kind"]
            _made(client.post(f"/{PATHS[kind]}/namespaces/{namespace}/{PLURALS[kind]}", json=thing))
        return plane.write_kubeconfig(f"muster-{namespace}", user={"token": issue_token(client, namespace)})


def let_see_nodes(client: httpx.Client, namespace: str) -> None:
    """The right that an installation can do without: the second block of the document."""
    for thing in account_objects(namespace, block=1):
        _made(client.post(f"/{RBAC}/{thing['kind'].lower()}s", json=thing))


def node(name: str, *, gpus: int = GPUS) -> dict[str, Any]:
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "500", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "type": "kwok"},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def make_namespace(client: httpx.Client, name: str) -> None:
    """Ready when its default account is there: without it no pod is admitted."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
    _made(client.post("/api/v1/namespaces", json=body))
    end = time.monotonic() + 60
    while client.get(f"/api/v1/namespaces/{name}/serviceaccounts/default").status_code != 200:
        assert time.monotonic() < end, "the controllers do not answer"
        time.sleep(0.1)


def account_objects(namespace: str, *, block: int = 0) -> list[dict[str, Any]]:
    """As the document tells people to create them, so that the tests prove the document."""
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.S)
    return list(yaml.safe_load_all(blocks[block].replace(NAMESPACE, namespace)))


def issue_token(client: httpx.Client, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/muster/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
    return str(_made(client.post(path, json=body))["status"]["token"])


def _made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())
