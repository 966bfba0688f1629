"""`helm install` of our chart on a real node: Postgres, Redis, the four processes and the jobs are pods of one cluster.

The images are those of the test of compose; Postgres and Redis are stand-ins under their names (rig/containers.py).
"""

import base64
import json
import os
import re
import subprocess
import sys
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
from rig.node import Node, why_not
from rig.plane import ControlPlane
from tests.cluster.conftest import need_rig
from tests.support.machine import need
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.long
SPACE, PORT = "muster", 18000
PROCESSES = ("web", "tasks", "beat", "watcher")
TAG, NEXT = "localhost/muster:0.1.0", "localhost/muster:0.1.1"
VALUES = (
    "image.repository=localhost/muster", "image.pullPolicy=Never", "postgres.size=", "data.existingClaim=data",
    f"clusters.kubernetes.IMAGE={pods_image.NAME}", "clusters.kubernetes.PULL_POLICY=Never", "web.replicas=2", "tasks.replicas=2",
    "watcher.replicas=2",
)  # fmt: skip
# A migration of a release to come, which old code does not know of.
MIGRATION = """
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("queues", "{last}")]
    operations = [migrations.RunSQL("CREATE TABLE queues_of_next_release (id integer)", migrations.RunSQL.noop)]
"""
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

    def __init__(self, plane: ControlPlane, node: Node, admin: httpx.Client):
        self.plane, self.node, self.admin = plane, node, admin
        self.url = f"http://{node.cable.node}:{PORT}"

    def helm(self, *words: str) -> str:
        try:
            return helm.helm(*words, "--namespace", SPACE, kubeconfig=self.plane.kubeconfig)
        except helm.HelmError as error:
            raise AssertionError(f"{error}\n{self.states()}") from None

    def install(self, act: str, *values: str, tag: str = "0.1.0") -> str:
        sets = [part for value in (*VALUES, f"image.tag={tag}", *values) for part in ("--set", value)]
        return self.helm(
            act, "muster", str(helm.CHART), "-f", str(helm.EXAMPLES / "try-out.yaml"), "--wait", "--timeout", "8m", *sets
        )  # fmt: skip

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
        data = self.admin.get(f"/api/v1/namespaces/{SPACE}/secrets/muster-secrets").json()["data"]
        return {name: base64.b64decode(value).decode() for name, value in data.items()}


@pytest.fixture(scope="module")
def installed(engine, image, context) -> Iterator[Installed]:
    need_rig()
    need(not why_not(), why_not())
    for sources in (helm.SOURCES, programs.PROXY_SOURCES):
        need(not programs.why_not(sources), programs.why_not(sources))
    with lending.raised(has_services=True) as (plane, node), plane.client() as admin:
        _bring(engine, node, context)
        admin.post("/api/v1/namespaces", json={"metadata": {"name": SPACE}}).raise_for_status()
        lending.claim(admin, "data", path=str(_folder(node)), namespace=SPACE)
        yield Installed(plane, node, admin)


def _folder(node: Node) -> Path:
    """Code and logs: fsGroup is not applied to a folder of the node."""
    there = node.folder / "data"
    there.mkdir()
    os.chown(there, 10001, 10001)
    return there


def _bring(engine, node: Node, context: Path) -> None:
    """Build the next release's image, which has one migration more, and give the node all images."""
    last = max(path.stem for path in (context / "queues/migrations").glob("0*.py"))
    place = node.folder / "next"
    place.mkdir()
    (place / "migration.py").write_text(MIGRATION.format(last=last))
    (place / "Dockerfile").write_text(
        f"FROM {TAG}\nCOPY --chmod=444 migration.py /muster/queues/migrations/9999_of_next_release.py\n"
    )
    engine.build(place, tag=NEXT)
    archive = node.folder / "images.tar"
    engine.run("podman", "save", "--format", "docker-archive", "--multi-image-archive", "-o", str(archive), TAG, NEXT, containers.POSTGRES, containers.REDIS)  # fmt: skip
    node.take_image(archive)
    archive.unlink()


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
        return httpx.get(f"{installed.url}/readyz", headers={"Host": "muster"}, timeout=10).status_code
    except httpx.TransportError:
        return 0


def test_one_command_installs_it_and_jobs_run_through_an_upgrade(installed):
    notes = installed.install("install", "allowedHosts={" + installed.node.cable.node + "}")
    assert "helm -n muster test muster" in notes
    (migrate,) = installed.pods(component="migrate")
    password = re.search(r"admin signs in with (\S+) within", installed.log(migrate))[1]
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

        counting = "import time\nfor n in range(100000): print('line', n, flush=True); time.sleep(0.2)"
        job = client.submit(["python3", "-c", counting], queue="train", directory=None, framework="plain", nodes=1)
        until(lambda: client.job(job.id).phase == "running", lambda: client.job(job.id))
        installed.install("upgrade", "allowedHosts={" + installed.node.cable.node + "}", tag="0.1.1")
        until(lambda: _images(installed) == {NEXT}, installed.states)
        assert _tables(installed, "queues_of_next_release"), "the new image's migration was not applied"
        installed.helm("rollback", "muster", "1", "--wait")
        until(lambda: _images(installed) == {TAG}, installed.states)
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
    assert left == {"secrets": ["muster-secrets"], "persistentvolumeclaims": ["data"]}


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


def _are_ready(installed: Installed) -> bool:
    found = [one for part in PROCESSES for one in installed.pods(component=part)]
    return len(found) == 7 and all(
        any(said["type"] == "Ready" and said["status"] == "True" for said in one["status"].get("conditions", []))
        and "deletionTimestamp" not in one["metadata"]
        for one in found
    )


def _no_secret_is_shown(installed: Installed, password: str) -> None:
    """In no log but the migration's, no pod's description, and not in what helm tells of the values."""
    secrets = [value for name, value in installed.secret().items() if name.endswith(("key", "password"))]
    shown = installed.helm("get", "values", "muster", "--all") + json.dumps(installed.pods())
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
                found[plural] = names
    return found
