"""Fill the control plane: simulated nodes, a namespace, and Muster's account."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from .elsewhere import Elsewhere
from .plane import ControlPlane

NAMESPACE, SYSTEM = "muster-jobs", "muster-system"
GPUS = 8
DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
REVIEW = "authorization.k8s.io/v1"
APPLY = {"Content-Type": "application/apply-patch+yaml"}


def fill(plane: ControlPlane, *, nodes: int) -> Path:
    """Create nodes, and the namespace of the deployment guide; return the kubeconfig of its account."""
    with plane.client() as client:
        for number in range(nodes):
            _made(client.post("/api/v1/nodes", json=node(f"fake-{number}")))
    return settle(plane, NAMESPACE)


def settle(plane: ControlPlane | Elsewhere, namespace: str) -> Path:
    """Create a namespace and its account; return the account's kubeconfig."""
    with plane.client() as client:
        for thing in objects("account", namespace):
            apply(client, thing)
        _await_default_account(client, namespace)
        await_right(client, username(namespace), namespace=namespace, resource="pods", verb="create")
        token = issue_token(client, account_namespace(namespace))
        return plane.write_kubeconfig(f"muster-{namespace}", user={"token": token})


def abandon(client: httpx.Client, namespace: str) -> None:
    """Delete a namespace and its account, without waiting until they are gone."""
    for one in (namespace, account_namespace(namespace)):
        client.delete(f"/api/v1/namespaces/{one}")


def let_see_nodes(client: httpx.Client, namespace: str) -> None:
    """Grant the right that an installation can do without: deploy/nodes.yaml."""
    _grant(client, namespace, "nodes", resource="nodes", verb="watch")


def let_see_all_pods(client: httpx.Client, namespace: str) -> None:
    """Grant the right to list the pods of others: deploy/foreign-pods.yaml."""
    _grant(client, namespace, "foreign-pods", resource="pods", verb="list")


def let_watch_all(client: httpx.Client, namespace: str) -> None:
    """Grant the right to follow all namespaces at once: deploy/all-namespaces.yaml."""
    _grant(client, namespace, "all-namespaces", resource="services", verb="watch")


def let_make_namespaces(client: httpx.Client, namespace: str) -> None:
    """Grant the right to make namespaces for teams: deploy/team-namespaces.yaml."""
    _grant(client, namespace, "team-namespaces", resource="namespaces", verb="create")


def _grant(client: httpx.Client, namespace: str, file: str, **right: str) -> None:
    """Apply a file of deploy/, and wait for one of the rights in it, in all namespaces."""
    for thing in objects(file, namespace):
        apply(client, thing)
    await_right(client, username(namespace), **right)


def account_namespace(namespace: str) -> str:
    """Return where the account of a namespace is: another one for each, so that no test has the rights of another."""
    return f"{namespace.removesuffix('-jobs')}-system"


def username(namespace: str) -> str:
    """Return how the API server names the account of a namespace."""
    return f"system:serviceaccount:{account_namespace(namespace)}:muster"


def apply(client: httpx.Client, thing: dict[str, Any]) -> None:
    """Create an object or change it, as `kubectl apply` does."""
    kind, meta = f"{thing['kind'].lower()}s", thing["metadata"]
    version = thing["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    how = {"fieldManager": "rig", "force": "true"}
    _made(client.patch(f"{root}{within}/{kind}/{meta['name']}", params=how, headers=APPLY, content=json.dumps(thing)))


def await_right(client: httpx.Client, user: str, **asked: str) -> None:
    """Wait for a permission: the server answers from its own cache of bindings, which may lag."""
    _until(lambda: is_allowed(client, user, **asked), f"{user} may not {asked}")


def is_allowed(client: httpx.Client, user: str, **asked: str) -> bool:
    """Whether the user, a service account, has the permission: `resource`, `verb`, `namespace` and more."""
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
    spec = {"user": user, "groups": groups, "resourceAttributes": asked}
    body = {"apiVersion": REVIEW, "kind": "SubjectAccessReview", "spec": spec}
    return bool(_made(client.post(f"/apis/{REVIEW}/subjectaccessreviews", json=body))["status"]["allowed"])


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


def _await_default_account(client: httpx.Client, namespace: str) -> None:
    """Without its default account no pod is admitted to a new namespace."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    _until(lambda: client.get(path).status_code == 200, "the controllers do not answer")


def _until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait up to five minutes: after a minute without its server a controller is slow to recover."""
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


def objects(file: str, namespace: str, *, system: str = "") -> list[dict[str, Any]]:
    """Return the objects of a deploy file as users apply them, so that the tests prove these files.

    `system`: the account's namespace, if it is not the namespace's own.
    """
    text = (DEPLOY / f"{file}.yaml").read_text().replace(NAMESPACE, namespace)
    return list(yaml.safe_load_all(text.replace(SYSTEM, system or account_namespace(namespace))))


def issue_token(client: httpx.Client, namespace: str) -> str:
    """Return a token of the account `muster` that is in this namespace."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/muster/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
    return str(_made(client.post(path, json=body))["status"]["token"])


def _made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())
