"""Our chart on a node of its own, and a person's ways to it: docker, helm, kubectl, a browser and the command line.

The images are those of the test of compose; Postgres and Redis are stand-ins under their names (rig/containers.py).
"""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from muster.client import Client

from embedded.ports import free_port
from rig import containers, helm, lending, programs
from rig import image as pods_image
from rig.containers import Engine
from rig.node import LENT, Node
from rig.plane import ControlPlane
from tests.support.patience import PATIENCE_SECONDS, until
from tests.system.image.readme import commands

SPACE, JOBS, PORT = "muster", "muster-jobs", 18000
ACCOUNT = f"system:serviceaccount:{SPACE}:muster"
CHECKOUT = helm.CHART.parents[1]
PROCESSES = ("web", "tasks", "beat", "watcher")
# What the chart claims for trying out, and who writes to it.
VOLUMES = {"muster-data": 10001, "tables-muster-postgres-0": 999}
# A migration of a release to come, which old code does not know of.
MIGRATION = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("queues", "{last}")]
    operations = [{operations}]
"""
A_TABLE = 'migrations.RunSQL("CREATE TABLE queues_of_next_release (id integer)", migrations.RunSQL.noop)'
COUNTING = "import time\nfor n in range(100000): print(f'line {n}', flush=True); time.sleep(0.2)"
CHOSEN = "a-new-password-for-admin"
PATIENT = 2 * PATIENCE_SECONDS


class Installed:
    """The chart on a node of its own, and a person's ways to it."""

    def __init__(self, engine: Engine, plane: ControlPlane, node: Node, admin: httpx.Client, registry: str):
        self._engine, self.plane, self.node, self.admin, self.registry = engine, plane, node, admin, registry
        self.url = f"http://{node.cable.node}:{PORT}"

    def helm(self, *words: str) -> str:
        try:
            return helm.helm(*words, "--namespace", SPACE, kubeconfig=self.plane.kubeconfig)
        except helm.HelmError as error:
            raise AssertionError(f"{error}\n{self.states()}") from None

    def helm_refuses(self, *words: str) -> str:
        """Return what helm says when it refuses."""
        try:
            said = helm.helm(*words, "--namespace", SPACE, kubeconfig=self.plane.kubeconfig)
        except helm.HelmError as error:
            return str(error)
        raise AssertionError(f"helm did it: {said}")

    def upgrade(self, *, tag: str, **values: str) -> None:
        """To another image, or to other values."""
        sets = [part for name, value in values.items() for part in ("--set", f"{name.replace('__', '.')}={value}")]
        self.helm(
            "upgrade",
            "muster",
            str(helm.CHART),
            "--reuse-values",
            "--wait",
            "--timeout",
            "8m",
            "--set",
            f"image.tag={tag}",
            *sets,
        )

    def shell(self, line: str, *, cwd: Path = CHECKOUT) -> str:
        """Run a line of our documents as a person does who has docker, helm and kubectl, and a registry of their own."""
        programs_of = {containers.docker(), helm.program().parent, programs.build(programs.KUBECTL_SOURCES)}
        path = ":".join([*map(str, programs_of), os.environ["PATH"]])
        env = {**self._engine.env, "PATH": path, "KUBECONFIG": str(self.plane.kubeconfig)}
        line = line.replace("REGISTRY", self.registry)
        done = subprocess.run(["bash", "-c", line], cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-4000:], self.states())
        return done.stdout

    def pods(self, namespace: str = SPACE, **labels: str) -> list[dict[str, Any]]:
        chosen = ",".join(f"app.kubernetes.io/{name}={value}" for name, value in labels.items())
        answer = self.admin.get(
            f"/api/v1/namespaces/{namespace}/pods", params={"labelSelector": chosen} if chosen else {}
        )
        return list(answer.json()["items"])

    def log(self, pod: dict[str, Any]) -> str:
        return self.admin.get(f"/api/v1/namespaces/{SPACE}/pods/{pod['metadata']['name']}/log").text

    def states(self) -> str:
        told = [
            (
                one["metadata"]["name"],
                one["status"].get("phase"),
                one["status"].get("containerStatuses", [{}])[0].get("state"),
                self.log(one)[-1500:],
            )
            for one in self.pods()
        ]
        return json.dumps(told, indent=1)

    def left(self) -> set[str]:
        """What the cluster still has of the release, as plural/name: by its label, and all in Muster's namespace."""
        found = set()
        for group, kind in self._kinds():
            items = self.admin.get(f"{group}/{kind}").json().get("items", [])
            found |= {f"{kind}/{one['metadata']['name']}" for one in items if _is_of_release(kind, one["metadata"])}
        return found

    def _kinds(self) -> Iterator[tuple[str, str]]:
        """(path of the group, plural) of everything that can be listed."""
        groups = self.admin.get("/apis").json()["groups"]
        for group in ("/api/v1", *(f"/apis/{one['preferredVersion']['groupVersion']}" for one in groups)):
            for one in self.admin.get(group).json()["resources"]:
                if "list" in one["verbs"] and "/" not in one["name"]:
                    yield group, one["name"]

    def service_address(self) -> str:
        return str(self.admin.get(f"/api/v1/namespaces/{SPACE}/services/muster").json()["spec"]["clusterIP"])

    def secret(self) -> dict[str, str]:
        """What the chart's Secret holds; nothing if there is none."""
        data = self.admin.get(f"/api/v1/namespaces/{SPACE}/secrets/muster-secrets").json().get("data", {})
        return {name: base64.b64decode(value).decode() for name, value in data.items()}


def _is_of_release(kind: str, meta: dict[str, Any]) -> bool:
    """Not what Kubernetes itself puts into each namespace, nor what it writes about what was there."""
    if kind in ("events", "endpoints", "endpointslices", "leases", "namespaces") and meta["name"] != JOBS:
        return False
    is_labelled = meta.get("labels", {}).get("app.kubernetes.io/instance") == "muster"
    is_kubernetes = meta["name"] in ("default", "kubernetes", "kube-root-ca.crt")
    return is_labelled or (meta.get("namespace") == SPACE and not is_kubernetes)


def offer_volumes(admin: httpx.Client, node: Node) -> None:
    """Empty volumes for the claims, as a storage class would make them. fsGroup is not applied to a folder of the node."""
    for claim, user in VOLUMES.items():
        there = tempfile.mkdtemp(prefix=f"{claim}-", dir=node.folder)
        os.chown(there, user, user)
        spec = {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "hostPath": {"path": there},
            "claimRef": {"namespace": SPACE, "name": claim},
        }  # fmt: skip
        admin.post("/api/v1/persistentvolumes", json={"metadata": {"name": claim}, "spec": spec}).raise_for_status()


def lose_volumes(admin: httpx.Client) -> None:
    """Delete the claims and the volumes, and wait until they are gone."""
    claims = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims"
    for claim in VOLUMES:
        for url in (f"{claims}/{claim}", f"/api/v1/persistentvolumes/{claim}"):
            admin.delete(url).raise_for_status()
            until(lambda url=url: admin.get(url).status_code == 404, lambda url=url: admin.get(url).text)


def bring(engine: Engine, node: Node) -> None:
    """Give the node the stand-ins of Docker's registry, which cannot be reached from here."""
    archive = node.folder / "images.tar"
    engine.run("podman", "save", "--format", "docker-archive", "--multi-image-archive", "-o", str(archive), containers.POSTGRES, containers.REDIS)  # fmt: skip
    node.take_image(archive)
    archive.unlink()


def push_next(installed: Installed, context: Path, *, tag: str, operations: str) -> None:
    """Build the image of a release to come, which has one migration more, and push it."""
    last = max(path.stem for path in (context / "queues/migrations").glob("0*.py"))
    place = Path(tempfile.mkdtemp(prefix="next-", dir=installed.node.folder))
    (place / "migration.py").write_text(MIGRATION.format(last=last, operations=operations))
    (place / "Dockerfile").write_text(
        f"FROM {installed.registry}/muster:0.1.0\nCOPY --chmod=444 migration.py /muster/queues/migrations/9999_of_next_release.py\n"
    )
    installed.shell(f"docker build -t REGISTRY/muster:{tag} . && docker push REGISTRY/muster:{tag}", cwd=place)


@contextmanager
def forwarded(installed: Installed) -> Iterator[str]:
    """Reach the Service from this machine by the line of docs/helm.md, on another port; yields the address."""
    port = free_port()
    line = re.search(r"`(kubectl [^`]* port-forward [^`]*) 8000:80`", (CHECKOUT / "docs/helm.md").read_text())[1]
    kubectl = programs.build(programs.KUBECTL_SOURCES) / "kubectl"
    words = [str(kubectl), *line.split()[1:], f"{port}:80"]
    forward = subprocess.Popen(words, env={**os.environ, "KUBECONFIG": str(installed.plane.kubeconfig)})
    try:
        url = f"http://localhost:{port}"
        until(lambda: _status(url) == 200, installed.states)
        yield url
    finally:
        forward.kill()
        forward.wait()


@contextmanager
def reached(installed: Installed) -> Iterator[None]:
    """Lead a port of the node to the Service, as an ingress controller does."""
    words = [
        "nsenter",
        "--target",
        str(installed.node.pid),
        "--net",
        sys.executable,
        str(Path(lending.__file__).with_name("service.py")),
    ]
    forward = subprocess.Popen([*words, f"{installed.node.cable.node}:{PORT}", f"{installed.service_address()}:80"])
    try:
        until(lambda: _status(installed.url) == 200, installed.states)
        yield
    finally:
        forward.kill()
        forward.wait()


def _status(url: str) -> int:
    try:
        return httpx.get(f"{url}/login", timeout=10).status_code
    except httpx.TransportError:
        return 0


def push(installed: Installed, context: Path) -> None:
    installed.shell(f"docker tag {pods_image.NAME} REGISTRY/train:1 && docker push REGISTRY/train:1")
    installed.shell(commands("helm install")[0], cwd=context)


def install(installed: Installed, *more: str) -> tuple[str, str]:
    """Run the README's lines; returns the chart's notes and the one-time password. `more` is added to `helm install`."""
    _, line, logs = commands("helm install")
    notes = installed.shell(" ".join([line, *more]))
    said = installed.shell(logs)
    found = re.search(r"admin signs in with (\S+) within", said)
    assert found, (said, installed.states())
    return notes, found[1]


def muster(installed: Installed, url: str, token: str, *words: str) -> str:
    """Run the command line as a person who is signed in; returns what it printed."""
    own = {"MUSTER_URL": url, "MUSTER_TOKEN": token, "MUSTER_CACHE": str(installed.node.folder / "cli")}
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT / "client"), **own},
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-4000:], installed.states())
    return done.stdout


def run_sample_job(installed: Installed, url: str, token: str) -> None:
    """Submit the sample job from the command line, and see its two ranks succeed in pods of the jobs' namespace."""
    lend_packages(installed)
    words = ("--queue", "train", "--nodes", "2", "--nproc", "1", "--dir", "examples", "--volume", "packages")
    job = muster(
        installed, url, token, "submit", "-q", *words, "--", "torchrun", "ddp_digits.py", "--epochs", "4"
    ).strip()
    pods = until(lambda: installed.pods(JOBS), installed.states)
    assert {one["spec"]["containers"][0]["image"] for one in pods} == {f"{installed.registry}/train:1"}
    muster(installed, url, token, "wait", job)
    ranks = json.loads(muster(installed, url, token, "ranks", job, "-o", "json"))
    assert [(one["rank"], one["state"]) for one in ranks] == [(rank, "succeeded") for rank in range(2)]


def lend_packages(installed: Installed) -> None:
    """Offer PyTorch to jobs as a volume `packages`: it is not in the image."""
    claims = f"/api/v1/namespaces/{JOBS}/persistentvolumeclaims"
    if installed.admin.get(f"{claims}/packages").status_code == 404:
        lending.claim(installed.admin, "packages", path=LENT, namespace=JOBS)


def images(installed: Installed) -> set[str]:
    """The images of all processes, including pods that are terminating."""
    found = [one for part in PROCESSES for one in installed.pods(component=part)]
    return {one["spec"]["containers"][0]["image"] for one in found}


def first_token(url: str, password: str) -> str:
    """Sign in, choose a password, make a token, a team and a queue, as the first administrator does."""
    with httpx.Client(base_url=url, follow_redirects=True, timeout=PATIENCE_SECONDS) as browser:
        assert _post(browser, "/login", username="admin", password=password).status_code == 200
        old_and_new = {"old_password": password, "new_password1": CHOSEN, "new_password2": CHOSEN}
        assert "Choose" not in _post(browser, "/account/password", **old_and_new).text
        assert "Muster" in browser.get("/people").text
    token = Client(url).login("admin", password=CHOSEN, name="test", scope="manage").token
    client = Client(url, token)
    client.create_team("research")
    client.set_member("research", "admin", role="admin")
    client.create_queue("train", team="research", cluster="kubernetes", resource="cpu", slots=8)
    return token


def _post(browser: httpx.Client, path: str, **form: str) -> httpx.Response:
    form_page = browser.get(path)
    assert form_page.status_code == 200, (form_page.url, form_page.status_code, form_page.text[:1000])
    # Its name is another one by TLS.
    token = next(one.value for one in browser.cookies.jar if "csrf" in one.name)
    return browser.post(
        path,
        data={**form, "csrfmiddlewaretoken": token},
        headers={"Origin": str(browser.base_url).rstrip("/")},
    )


def numbers(client: Client, job: int) -> list[int]:
    return [int(line.text.split()[1]) for line in client.logs(job) if line.text.startswith("line ")]


def are_ready(installed: Installed, *, count: int = len(PROCESSES)) -> bool:
    """Return whether `count` pods of our processes are there, and all of them ready."""
    found = [one for part in PROCESSES for one in installed.pods(component=part)]
    return len(found) == count and all(
        any(said["type"] == "Ready" and said["status"] == "True" for said in one["status"].get("conditions", []))
        and "deletionTimestamp" not in one["metadata"]
        for one in found
    )
