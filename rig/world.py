"""Fill the control plane: simulated nodes, a namespace, and Muster's account."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from .elsewhere import Elsewhere
from .plane import ControlPlane

NAMESPACE = "muster-jobs"
GPUS = 8
DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
RBAC, REVIEW = "apis/rbac.authorization.k8s.io/v1", "authorization.k8s.io/v1"
PATHS = {"ServiceAccount": "api/v1", "Role": RBAC, "RoleBinding": RBAC}
PLURALS = {"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings"}


def fill(plane: ControlPlane, *, nodes: int) -> Path:
    """Create nodes, and the namespace of the deployment guide; return the kubeconfig of its account."""
    with plane.client() as client:
        for number in range(nodes):
            _made(client.post("/api/v1/nodes", json=node(f"fake-{number}")))
    return settle(plane, NAMESPACE)


def settle(plane: ControlPlane | Elsewhere, namespace: str) -> Path:
    """Create a namespace and its account; return the account's kubeconfig."""
    with plane.client() as client:
        first, *others = objects("account", namespace)
        make_namespace(client, first)
        for thing in others:
            kind = thing["kind"]
            _made(client.post(f"/{PATHS[kind]}/namespaces/{namespace}/{PLURALS[kind]}", json=thing))
        _until_allowed(client, namespace, namespace=namespace, resource="pods", verb="create")
        return plane.write_kubeconfig(f"muster-{namespace}", user={"token": issue_token(client, namespace)})


def let_see_nodes(client: httpx.Client, namespace: str) -> None:
    """Grant the right that an installation can do without: deploy/nodes.yaml."""
    for thing in objects("nodes", namespace):
        _made(client.post(f"/{RBAC}/{thing['kind'].lower()}s", json=thing))
    _until_allowed(client, namespace, resource="nodes", verb="watch")


def _until_allowed(client: httpx.Client, account: str, **asked: str) -> None:
    """Wait for a permission: the server answers from its own cache of bindings, which may lag."""
    user = {"user": f"system:serviceaccount:{account}:muster", "groups": [f"system:serviceaccounts:{account}"]}
    body = {"apiVersion": REVIEW, "kind": "SubjectAccessReview", "spec": {**user, "resourceAttributes": asked}}
    path = f"/apis/{REVIEW}/subjectaccessreviews"
    _until(
        lambda: _made(client.post(path, json=body))["status"]["allowed"], f"the account of {account} may not {asked}"
    )


def node(name: str, *, gpus: int = GPUS, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "500", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "type": "kwok", **(labels or {})},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def make_namespace(client: httpx.Client, thing: dict[str, Any]) -> None:
    """Create a namespace and wait for its default account: without it no pod is admitted."""
    name = _made(client.post("/api/v1/namespaces", json=thing))["metadata"]["name"]
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    _until(lambda: client.get(path).status_code == 200, "the controllers do not answer")


def _until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait up to five minutes: after a minute without its server a controller is slow to recover."""
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


def objects(file: str, namespace: str) -> list[dict[str, Any]]:
    """Return the objects of a deploy file as users apply them, so that the tests prove these files."""
    return list(yaml.safe_load_all((DEPLOY / f"{file}.yaml").read_text().replace(NAMESPACE, namespace)))


def issue_token(client: httpx.Client, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/muster/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
    return str(_made(client.post(path, json=body))["status"]["token"])


def _made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())
