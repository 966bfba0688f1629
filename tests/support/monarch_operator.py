"""A stand-in for Monarch's operator, whose Go module cannot be fetched: its CRD in both shapes, and what it makes of a mesh.

It does what meta-pytorch/monarch-kubernetes does (operator/internal/controller): a headless Service `<mesh>-svc`, and a
StatefulSet `<mesh>` whose pods the cluster's own controllers create. It injects no command and never looks at pods.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

GROUP, PLURAL = "monarch.pytorch.org", "monarchmeshes"
NAME = f"{PLURAL}.{GROUP}"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OLD, NEW = "0.1", "0.2"  # releases: `podTemplate` is a PodSpec, or a PodTemplateSpec
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEMPLATES = {
    OLD: {"containers": {"type": "array", "items": _ANYTHING}},
    NEW: {"metadata": _ANYTHING, "spec": {**_ANYTHING, "properties": {"containers": {"type": "array", "items": _ANYTHING}}}},
}  # fmt: skip


def definition(release: str) -> dict[str, Any]:
    """Return the CRD of a release, with the fields that its schema has."""
    template = {**_ANYTHING, "properties": _TEMPLATES[release]}
    fields = {
        "replicas": {"type": "integer", "minimum": 1},
        "port": {"type": "integer", "default": 26600},
        "podTemplate": template,
    }
    schema = {
        "type": "object",
        "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "required": ["replicas", "podTemplate"], "properties": fields},
            "status": _ANYTHING,
        },
        "x-kubernetes-validations": [
            {"rule": "self.metadata.name.matches('^[a-z][a-z0-9]*$')", "message": "a mesh's name has no dashes"}
        ],
    }
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "MonarchMesh", "plural": PLURAL},
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


@contextmanager
def defined(admin: httpx.Client, release: str) -> Iterator[None]:
    """Define MonarchMesh in the cluster, as the operator's chart does, and remove it with all meshes at the end."""
    answer = admin.post(DEFINITIONS, json=definition(release))
    assert answer.status_code == 201, answer.text
    try:
        _wait(lambda: _is_described(admin))
        yield
    finally:
        admin.delete(f"{DEFINITIONS}/{NAME}")
        _wait(lambda: admin.get(f"{DEFINITIONS}/{NAME}").status_code == 404 and not _is_described(admin))


def _is_described(admin: httpx.Client) -> bool:
    return admin.get(f"/openapi/v3/apis/{GROUP}/v1alpha1").status_code == 200


def _wait(what: Any) -> None:
    while not what():
        threading.Event().wait(0.1)


class Operator:
    """Reconciles the meshes of one namespace in a thread, from `with` to its end."""

    def __init__(self, admin: httpx.Client, namespace: str, release: str):
        self.admin, self.release = admin, release
        self.core = f"/api/v1/namespaces/{namespace}"
        self.meshes = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/{PLURAL}"
        self.sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monarch-operator")
        self.problems: list[str] = []

    def __enter__(self) -> "Operator":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        assert not self.problems, self.problems

    def _run(self) -> None:
        while not self._over.wait(0.1):
            for mesh in self.admin.get(self.meshes).json().get("items", ()):
                if "deletionTimestamp" not in mesh["metadata"]:
                    self._make(f"{self.core}/services", self._service(mesh))
                    self._make(self.sets, self._set(mesh))

    def _make(self, path: str, body: dict[str, Any]) -> None:
        answer = self.admin.post(path, json=body)
        if answer.status_code not in (201, 409):
            self.problems.append(answer.text)

    def _service(self, mesh: dict[str, Any]) -> dict[str, Any]:
        port = {"name": "monarch", "port": mesh["spec"]["port"]}
        spec = {"clusterIP": "None", "selector": _selector(mesh), "ports": [port]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": _named(mesh, f"{_name(mesh)}-svc"), "spec": spec}

    def _set(self, mesh: dict[str, Any]) -> dict[str, Any]:
        given = mesh["spec"]["podTemplate"]
        template = given if self.release == NEW else {"spec": given}
        labels = {**template.get("metadata", {}).get("labels", {}), **_selector(mesh)}
        spec = {
            "replicas": mesh["spec"]["replicas"],
            "serviceName": f"{_name(mesh)}-svc",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": _selector(mesh)},
            "template": {**template, "metadata": {**template.get("metadata", {}), "labels": labels}},
        }
        about = {**_named(mesh, _name(mesh)), "labels": mesh["metadata"].get("labels", {})}
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about, "spec": spec}


def _name(mesh: dict[str, Any]) -> str:
    return str(mesh["metadata"]["name"])


def _selector(mesh: dict[str, Any]) -> dict[str, str]:
    return {"monarch.pytorch.org/mesh-name": _name(mesh), "app.kubernetes.io/name": "monarch-worker"}


def _named(mesh: dict[str, Any], name: str) -> dict[str, Any]:
    owner = {
        "apiVersion": f"{GROUP}/v1alpha1", "kind": "MonarchMesh", "name": _name(mesh), "uid": mesh["metadata"]["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {"name": name, "ownerReferences": [owner]}
