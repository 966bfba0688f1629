"""What a namespace of a team consists of when Muster makes it, as deploy/account.yaml and default-deny.yaml do. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from .site import Site

NAME = "muster"  # of the binding, as in deploy/account.yaml
RBAC = "rbac.authorization.k8s.io"


class Part(NamedTuple):
    """An object to create: its path below the API's root, and itself."""

    path: str
    content: Mapping[str, Any]


def namespace(name: str) -> Part:
    labels = {"app.kubernetes.io/managed-by": NAME, "pod-security.kubernetes.io/enforce": "restricted"}
    return Part("api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})


def account(name: str, site: Site, *, user: str) -> Part:
    """Return what gives Muster's account its rights in the namespace; `user`: how the API server names that account."""
    return _binding(name, NAME, site.team_role, _subject(user))


def closed(name: str, site: Site) -> list[Part]:
    """Return what needs these rights, or follows them: the account of Monarch's controllers, and a closed network."""
    reader = {"kind": "ServiceAccount", "name": site.reader_account, "namespace": name}
    policy = {"metadata": {"name": "default-deny"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
    return [
        Part(f"api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": site.reader_account}}),
        _binding(name, site.reader_account, f"{site.team_role}-reader", reader),
        Part(f"apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies", policy),
    ]


def _binding(namespace: str, name: str, role: str, subject: Mapping[str, str]) -> Part:
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    content = {"metadata": {"name": name}, "subjects": [subject], "roleRef": ref}
    return Part(f"apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", content)


def _subject(user: str) -> dict[str, str]:
    kind, _, rest = user.partition("system:serviceaccount:")
    home, _, name = rest.partition(":")
    if not kind and home and name:
        return {"kind": "ServiceAccount", "name": name, "namespace": home}
    return {"apiGroup": RBAC, "kind": "User", "name": user}
