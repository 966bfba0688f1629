"""`helm install` of our chart on a real node: Postgres, Redis, the four processes and the jobs are pods of one cluster.

The images are those of the test of compose; Postgres and Redis are stand-ins under their names (rig/containers.py).
"""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from muster.client import Client

from rig import containers, helm, lending, programs
from rig import image as pods_image
from rig.containers import Engine
from rig.node import Node, why_not
from rig.plane import ControlPlane
from tests.cluster.conftest import need_rig
from tests.support.machine import need
from tests.support.patience import PATIENCE_SECONDS
from tests.system.image.readme import commands, lines

SPACE, PORT = "muster", 18000
CHECKOUT = helm.CHART.parents[1]
PROCESSES = ("web", "tasks", "beat", "watcher")
# What the chart claims for trying out, and who writes to it.
VOLUMES = {"muster-data": 10001, "tables-muster-postgres-0": 999}
# A migration of a release to come, which old code does not know of.
MIGRATION = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("queues", "{last}")]
    operations = [migrations.RunSQL("CREATE TABLE queues_of_next_release (id integer)", migrations.RunSQL.noop)]
"""
COUNTING = "import time\nfor n in range(100000): print('line', n, flush=True); time.sleep(0.2)"
CHOSEN = "a-new-password-for-admin"
PATIENT = 2 * PATIENCE_SECONDS


def until(true: Callable[[], Any], why: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENT
    while not (found := true()):
        assert time.monotonic() < end, why()
        time.sleep(0.5)
    return found


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

    def upgrade(self, *, tag: str) -> None:
        """To two of each process, of another image."""
        allowed = "allowedHosts={" + self.node.cable.node + "}"
        values = (f"image.tag={tag}", allowed, "web.replicas=2", "tasks.replicas=2", "watcher.replicas=2")
        sets = [part for value in values for part in ("--set", value)]
        self.helm("upgrade", "muster", str(helm.CHART), "--reuse-values", "--wait", "--timeout", "8m", *sets)

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

    def service_address(self) -> str:
        return str(self.admin.get(f"/api/v1/namespaces/{SPACE}/services/muster").json()["spec"]["clusterIP"])

    def secret(self) -> dict[str, str]:
        """What the chart's Secret holds; nothing if there is none."""
        data = self.admin.get(f"/api/v1/namespaces/{SPACE}/secrets/muster-secrets").json().get("data", {})
        return {name: base64.b64decode(value).decode() for name, value in data.items()}


@pytest.fixture(scope="module")
def installed(engine) -> Iterator[Installed]:
    need_rig()
    need(not why_not(), why_not())
    for sources in (helm.SOURCES, programs.PROXY_SOURCES, programs.KUBECTL_SOURCES):
        need(not programs.why_not(sources), programs.why_not(sources))
    with (
        lending.raised(has_services=True) as (plane, node),
        plane.client() as admin,
        containers.registry(node.folder, host=node.cable.host) as registry,
    ):
        node.trust_registry(registry)
        _offer_volumes(admin, node)
        _bring(engine, node)
        engine.run("podman", "load", "-i", str(pods_image.archive()))
        try:
            yield Installed(engine, plane, node, admin, registry)
        finally:
            named = engine.run("podman", "images", "--format={{.Repository}}:{{.Tag}}").stdout.split()
            engine.run("podman", "rmi", "--force", *[name for name in named if name.startswith(f"{registry}/")])


def _offer_volumes(admin: httpx.Client, node: Node) -> None:
    """Empty volumes for the claims, as a storage class would make them. fsGroup is not applied to a folder of the node."""
    for claim, user in VOLUMES.items():
        there = tempfile.mkdtemp(prefix=f"{claim}-", dir=node.folder)
        os.chown(there, user, user)
        spec = {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "hostPath": {"path": there},
            "claimRef": {"namespace": SPACE, "name": claim},
        }  # fmt: skip
        admin.post("/api/v1/persistentvolumes", json={"metadata": {"name": claim}, "spec": spec}).raise_for_status()


def _lose_volumes(admin: httpx.Client) -> None:
    """Delete the claims and the volumes, and wait until they are gone."""
    claims = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims"
    for claim in VOLUMES:
        for url in (f"{claims}/{claim}", f"/api/v1/persistentvolumes/{claim}"):
            admin.delete(url).raise_for_status()
            until(lambda url=url: admin.get(url).status_code == 404, lambda url=url: admin.get(url).text)


def _bring(engine: Engine, node: Node) -> None:
    """Give the node the stand-ins of Docker's registry, which cannot be reached from here."""
    archive = node.folder / "images.tar"
    engine.run("podman", "save", "--format", "docker-archive", "--multi-image-archive", "-o", str(archive), containers.POSTGRES, containers.REDIS)  # fmt: skip
    node.take_image(archive)
    archive.unlink()


def _push_next(installed: Installed, engine: Engine, context: Path) -> None:
    """Build the next release's image, which has one migration more, and push it."""
    last = max(path.stem for path in (context / "queues/migrations").glob("0*.py"))
    place = installed.node.folder / "next"
    place.mkdir()
    (place / "migration.py").write_text(MIGRATION.format(last=last))
    (place / "Dockerfile").write_text(
        f"FROM {installed.registry}/muster:0.1.0\nCOPY --chmod=444 migration.py /muster/queues/migrations/9999_of_next_release.py\n"
    )
    installed.shell("docker build -t REGISTRY/muster:0.1.1 . && docker push REGISTRY/muster:0.1.1", cwd=place)


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
        until(lambda: _status(installed) == 200, installed.states)
        yield
    finally:
        forward.kill()
        forward.wait()


def _status(installed: Installed) -> int:
    try:
        return httpx.get(f"{installed.url}/login", timeout=10).status_code
    except httpx.TransportError:
        return 0


def _push(installed: Installed, context: Path) -> None:
    installed.shell(f"docker tag {pods_image.NAME} REGISTRY/train:1 && docker push REGISTRY/train:1")
    installed.shell(commands("helm install")[0], cwd=context)


def _install(installed: Installed, *more: str) -> tuple[str, str]:
    """Run the README's lines; returns the chart's notes and the one-time password. `more` is added to `helm install`."""
    _, install, logs = commands("helm install")
    notes = installed.shell(" ".join([install, *more]))
    until(lambda: _are_ready(installed, count=4), installed.states)
    # Printed once the tables are there, for which the others wait too.
    said = until(lambda: re.search(r"admin signs in with (\S+) within", installed.shell(logs)), installed.states)
    return notes, said[1]


@pytest.mark.sampled
def test_the_readmes_lines_install_it_and_jobs_run_through_an_upgrade(installed, engine, context, noted):
    _push(installed, context)
    with noted.seconds("helm install until ready"):
        notes, password = _install(installed)
    assert "helm -n muster test muster" in notes
    installed.upgrade(tag="0.1.0")
    until(lambda: _are_ready(installed), installed.states)
    with reached(installed):
        client = _client(installed, password)
        first = client.submit(
            ["python3", "-c", "print('hello from', __import__('socket').gethostname())"],
            queue="train",
            directory=None,
            framework="plain",
            nodes=2,
        )
        until(lambda: client.job(first.id).phase == "succeeded", lambda: (client.job(first.id), installed.states()))
        assert len([line for line in client.logs(first.id) if "hello from" in line.text]) == 2

        job = client.submit(["python3", "-c", COUNTING], queue="train", directory=None, framework="plain", nodes=1)
        until(lambda: client.job(job.id).phase == "running", lambda: client.job(job.id))
        _push_next(installed, engine, context)
        with noted.seconds("helm upgrade with a migration"):
            installed.upgrade(tag="0.1.1")
        until(lambda: _images(installed) == {f"{installed.registry}/muster:0.1.1"}, installed.states)
        assert _tables(installed, "queues_of_next_release"), "the new image's migration was not applied"
        installed.helm("rollback", "muster", "2", "--wait")
        until(lambda: _images(installed) == {f"{installed.registry}/muster:0.1.0"}, installed.states)
        for part in PROCESSES:
            victim = installed.pods(component=part)[0]["metadata"]["name"]
            installed.admin.request(
                "DELETE", f"/api/v1/namespaces/{SPACE}/pods/{victim}", json={"gracePeriodSeconds": 0}
            ).raise_for_status()
        until(lambda: _are_ready(installed), installed.states)
        seen = max(_numbers(client, job.id))
        until(lambda: max(_numbers(client, job.id)) > seen + 5, lambda: client.job(job.id))
        assert client.job(job.id).attempt == 1 and client.job(job.id).phase == "running"
        numbers = _numbers(client, job.id)
        assert numbers == list(range(len(numbers))), "a line was lost"
        client.cancel(job.id)
        until(lambda: client.job(job.id).phase == "cancelled", lambda: client.job(job.id))
        assert installed.helm("test", "muster", "--timeout", "5m")
        _no_secret_is_shown(installed, password)
    installed.helm("uninstall", "muster", "--wait")
    until(lambda: not installed.pods(), installed.states)
    left = _left(installed)
    assert left == {"secrets": ["muster-secrets"], "persistentvolumeclaims": sorted(VOLUMES)}


@pytest.mark.long
def test_it_is_restored_after_its_volumes_were_lost_while_a_job_runs(installed, context):
    """By the lines of docs/backup.md. The Secret is still there, as `helm uninstall` leaves it."""
    backup, key, old_keys, _, restore = [
        line for line in lines("docs/backup.md") if "kubectl" in line or "docker run" in line or "helm" in line
    ]
    place = installed.node.folder / "restored"
    place.mkdir()
    reachable = "--set allowedHosts={" + installed.node.cable.node + "}"
    if installed.secret():  # of the test before
        _lose_volumes(installed.admin)
        _offer_volumes(installed.admin, installed.node)
    _push(installed, context)
    _, password = _install(installed, reachable)
    with reached(installed):
        client = _client(installed, password)
        job = client.submit(["python3", "-c", COUNTING], queue="train", directory=None, framework="plain", nodes=1)
        until(lambda: len(_numbers(client, job.id)) > 10, lambda: (client.job(job.id), installed.states()))
        installed.shell(backup, cwd=place)
    installed.helm("uninstall", "muster", "--wait")
    until(lambda: not installed.pods(), installed.states)
    _lose_volumes(installed.admin)
    _offer_volumes(installed.admin, installed.node)

    assert installed.shell(key, cwd=place).strip() == installed.secret()["secret_key"]
    assert installed.shell(old_keys, cwd=place) == ""
    _install(installed, reachable)
    installed.shell(restore, cwd=place)
    with reached(installed):
        seen = max(_numbers(client, job.id))
        until(lambda: max(_numbers(client, job.id)) > seen + 50, lambda: (client.job(job.id), installed.states()))
        found = client.job(job.id)
        assert (found.attempt, found.phase) == (1, "running")
        client.cancel(job.id)
        until(lambda: client.job(job.id).phase == "cancelled", lambda: client.job(job.id))
    installed.helm("uninstall", "muster", "--wait")


def _images(installed: Installed) -> set[str]:
    """The images of all processes, including pods that are terminating."""
    found = [one for part in PROCESSES for one in installed.pods(component=part)]
    return {one["spec"]["containers"][0]["image"] for one in found}


def _tables(installed: Installed, name: str) -> int:
    (server,) = installed.pods(component="postgres")
    address = installed.secret()["database_url"].replace("muster-postgres", server["status"]["podIP"])
    with psycopg.connect(address) as session:
        row = session.execute("SELECT count(*) FROM pg_tables WHERE tablename = %s", [name]).fetchone()
    return int(row[0])


def _client(installed: Installed, password: str) -> Client:
    """Sign in, choose a password, make a token, a team and a queue, as the first administrator does."""
    with httpx.Client(base_url=installed.url, timeout=PATIENCE_SECONDS, follow_redirects=True) as browser:
        assert _post(browser, "/login", username="admin", password=password).status_code == 200
        old_and_new = {"old_password": password, "new_password1": CHOSEN, "new_password2": CHOSEN}
        assert "Choose" not in _post(browser, "/account/password", **old_and_new).text
        assert "Muster" in browser.get("/people").text
    token = Client(installed.url).login("admin", password=CHOSEN, name="test", scope="manage").token
    client = Client(installed.url, token)
    client.create_team("research")
    client.set_member("research", "admin", role="admin")
    client.create_queue("train", team="research", cluster="kubernetes", resource="cpu", slots=8)
    return client


def _post(browser: httpx.Client, path: str, **form: str) -> httpx.Response:
    browser.get(path)
    return browser.post(
        path,
        data={**form, "csrfmiddlewaretoken": browser.cookies["csrftoken"]},
        headers={"Origin": str(browser.base_url).rstrip("/")},
    )


def _numbers(client: Client, job: int) -> list[int]:
    return [int(line.text.split()[1]) for line in client.logs(job) if line.text.startswith("line ")]


def _are_ready(installed: Installed, *, count: int = 7) -> bool:
    found = [one for part in PROCESSES for one in installed.pods(component=part)]
    return len(found) == count and all(
        any(said["type"] == "Ready" and said["status"] == "True" for said in one["status"].get("conditions", []))
        and "deletionTimestamp" not in one["metadata"]
        for one in found
    )


def _no_secret_is_shown(installed: Installed, password: str) -> None:
    """In no log but the migration's, no pod's description, and not in what helm tells of the values."""
    secrets = [value for name, value in installed.secret().items() if name.endswith(("key", "password"))]
    shown = installed.helm("get", "values", "muster", "--all") + json.dumps(installed.pods())
    shown += installed.shell("kubectl -n muster describe all,secrets,configmaps,persistentvolumeclaims,serviceaccounts")
    shown += "".join(
        installed.log(one)
        for one in installed.pods()
        if one["metadata"]["labels"].get("app.kubernetes.io/component") != "migrate"
    )
    assert len(secrets) == 3 and not [secret for secret in (*secrets, password) if secret in shown]


def _left(installed: Installed) -> dict[str, list[str]]:
    """What is left in Muster's namespace, but for what Kubernetes itself puts into each."""
    kinds = {"api/v1": ("pods", "services", "secrets", "serviceaccounts", "persistentvolumeclaims"), "apis/apps/v1": ("deployments", "statefulsets"), "apis/batch/v1": ("jobs",), "apis/networking.k8s.io/v1": ("networkpolicies",), "apis/policy/v1": ("poddisruptionbudgets",)}  # fmt: skip
    found = {}
    for group, plurals in kinds.items():
        for plural in plurals:
            items = installed.admin.get(f"/{group}/namespaces/{SPACE}/{plural}").json()["items"]
            names = [
                one["metadata"]["name"] for one in items if one["metadata"]["name"] not in ("default", "kubernetes")
            ]
            if names:
                found[plural] = sorted(names)
    return found
