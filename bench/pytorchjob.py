"""A PyTorchJob of Kubeflow's training-operator 1.8.1, built from its module and run as a process: a peer to measure against.

Its webhooks cannot be reached from the API server here and are taken away once its certificates are made.
"""

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from embedded.ports import free_port
from rig import programs
from rig.plane import ControlPlane
from rig.processes import Process
from rig.world import NAMESPACE

from .kube import until

MODULE, VERSION = "github.com/kubeflow/training-operator", "v1.8.1"
SOURCES = (programs.GoModule(MODULE, VERSION, {"training-operator": f"{MODULE}/cmd/training-operator.v1"}),)
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"
SECRET = "/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
WEBHOOK = "validator.training-operator.kubeflow.org"
INIT = """- name: init-pytorch
  image: x:1
  command: [sh, -c, "until nslookup {{.MasterAddr}}; do sleep 1; done"]
  securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""


@contextmanager
def operator(plane: ControlPlane, admin: httpx.Client) -> Iterator[None]:
    """Runs, and has seen that there are no jobs."""
    program = programs.build(SOURCES) / "training-operator"
    _prepare(admin)
    template = plane.folder / "initContainer.yaml"
    template.write_text(INIT)
    os.environ["KUBECONFIG"] = str(plane.kubeconfig)
    words = [
        str(program), "--enable-scheme=pytorchjob", f"--pytorch-init-container-template-file={template}",
        "--metrics-bind-address=0", "--health-probe-bind-address=0", f"--webhook-server-port={free_port()}",
    ]  # fmt: skip
    process = Process("training-operator", words, log=plane.folder / "training-operator.log")
    process.start()
    try:
        until(lambda: bool(admin.get(SECRET).json().get("data")))
        _give_certificates(admin.get(SECRET).json()["data"])
        until(lambda: "Starting workers" in process.log.read_text(errors="replace"))
        admin.delete(f"{WEBHOOKS}/{WEBHOOK}")
        yield
    finally:
        process.stop()
        del os.environ["KUBECONFIG"]


def job(name: str, replicas: int, spec: dict[str, Any]) -> dict[str, Any]:
    """One master and the rest workers, of the same pods."""
    containers = [{**spec["containers"][0], "name": "pytorch"}]
    template = {
        "spec": {name: value for name, value in spec.items() if name != "restartPolicy"} | {"containers": containers}
    }
    role = {"restartPolicy": "Never", "template": template}
    roles = {"Master": {**role, "replicas": 1}, "Worker": {**role, "replicas": replicas - 1}}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles},
    }  # fmt: skip


def _prepare(admin: httpx.Client) -> None:
    base = _module() / "manifests" / "base"
    definition = yaml.safe_load((base / "crds" / "kubeflow.org_pytorchjobs.yaml").read_text())
    webhook = yaml.safe_load((base / "webhook" / "manifests.yaml").read_text())
    webhook["metadata"]["name"] = WEBHOOK
    for path, thing in (
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition),
        ("/api/v1/namespaces", {"metadata": {"name": "kubeflow"}}),
        (SECRET.rpartition("/")[0], {"metadata": {"name": SECRET.rpartition("/")[2]}}),
        (WEBHOOKS, webhook),
    ):
        answer = admin.post(path, json=thing)
        assert answer.status_code == 201, answer.text
    until(lambda: admin.get(JOBS).status_code == 200)


def _module() -> Path:
    listing = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    found = Path(listing.stdout.strip()) / f"{MODULE}@{VERSION}"
    if not found.exists():
        raise programs.CanNotBuild(
            f"the manifests of {MODULE} {VERSION} are not in Go's module cache; go mod download brings them"
        )
    return found


def _give_certificates(data: dict[str, str]) -> None:
    """What a mounted Secret would do."""
    CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, content in data.items():
        (CERTIFICATES / name).write_bytes(base64.b64decode(content))
