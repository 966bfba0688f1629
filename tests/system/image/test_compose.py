"""`docker compose up` with docker-compose.yml as it is: real Postgres, Redis and the four processes in containers.

`docker` is podman-compose here, and Postgres and Redis are stand-ins (rig/containers.py). podman runs health checks by
systemd's timers, which this machine may not have, so the test runs them.
"""

import json
import os
import re
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from embedded.ports import free_port
from rig.containers import Engine, docker
from tests.support.patience import PATIENCE_SECONDS, until
from tests.system.image.installed import CHOSEN, PROCESSES
from tests.system.image.readme import commands, lines

pytestmark = pytest.mark.soak(guards=("Dockerfile", "docker-compose.yml", "deploy", "requirements/server.lock"))


class Compose:
    def __init__(self, engine: Engine, context):
        self._engine, self._context = engine, context
        self.project, port = f"muster-test-{uuid.uuid4().hex[:8]}", free_port()
        self.url = f"http://127.0.0.1:{port}"
        (context / ".env").write_text(f"MUSTER_LISTEN=127.0.0.1:{port}\n")
        self._env = {**engine.env, "PATH": f"{docker()}:{engine.env['PATH']}", "COMPOSE_PROJECT_NAME": self.project}

    def __call__(self, *words: str, check: bool = True) -> str:
        return self.shell(shlex.join(["docker", "compose", *words]), check=check)

    def shell(self, line: str, *, check: bool = True) -> str:
        """Run a line as a person does, in the folder of the checkout."""
        done = subprocess.run(
            ["sh", "-c", line], cwd=self._context, env=self._env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-4000:])
        return done.stdout + done.stderr

    def container(self, service: str) -> str:
        return f"{self.project}_{service}_1"

    def inside(self, service: str, *words: str) -> tuple[int, str]:
        done = self._engine.run("podman", "exec", self.container(service), *words, check=False)
        return done.returncode, done.stdout + done.stderr

    def inspect(self, service: str) -> Any:
        return json.loads(self._engine.run("podman", "inspect", self.container(service)).stdout)[0]

    def healthy(self, service: str) -> bool:
        """Run the service's health check, as an engine does."""
        return self.inside(service, *self.inspect(service)["Config"]["Healthcheck"]["Test"][1:])[0] == 0

    def status(self, path: str = "/readyz") -> int:
        try:
            return httpx.get(f"{self.url}{path}", timeout=PATIENCE_SECONDS).status_code
        except httpx.TransportError:
            return 0

    def log(self, service: str) -> str:
        said = self._engine.run("podman", "logs", "--since=2m", self.container(service), check=False)
        return said.stdout + said.stderr

    def until_ready(self) -> None:
        until(lambda: self.status() == 200, self.told)

    def told(self) -> str:
        """The end of what each service printed, and what became of it."""
        states = self._engine.run("podman", "ps", "--all", f"--filter=name={self.project}", check=False).stdout
        for one in ("postgres", "redis", "migrate", *PROCESSES):
            said = self._engine.run("podman", "logs", "--tail=20", self.container(one), check=False)
            states += f"{one}:\n{said.stdout}{said.stderr}\n"
        return states


@pytest.fixture(scope="module")
def compose(engine, image, context) -> Iterator[Compose]:
    found = Compose(engine, context)
    try:
        yield found
    finally:
        found("down", "--volumes", check=False)


@contextmanager
def sign_in(url: str, password: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
        client.get("/login")
        form = {"username": "admin", "password": password, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        assert client.post("/login", data=form).status_code == 302
        yield client


def choose(url: str, password: str) -> None:
    """Sign in with the one-time password, which opens nothing but the page for choosing one, and choose."""
    with sign_in(url, password) as client:
        assert client.get("/jobs").headers["Location"].startswith("/account/password")
        form = {"old_password": password, "new_password1": CHOSEN, "new_password2": CHOSEN}
        client.get("/account/password")
        answer = client.post("/account/password", data={**form, "csrfmiddlewaretoken": client.cookies["csrftoken"]})
        assert answer.status_code == 302
        assert client.get("/jobs").status_code == 200


def test_one_command_gives_a_working_installation_that_outlives_its_containers(engine, compose, context, noted):
    kubeconfig = context / "deploy/clusters/lab.kubeconfig"
    kubeconfig.write_text("clusters: []\n")
    os.chown(kubeconfig, 10001, 10001)
    build, up, logs = commands("docker compose")
    with noted.seconds("docker compose build"):
        compose.shell(build)
    with noted.seconds("docker compose up until ready"):
        compose.shell(up)
        # podman's `logs -f` may end before its container has (its issues 12263 and 10596), so it is asked again.
        password = until(lambda: re.search(r"admin signs in with (\S+) within", compose.shell(logs)), compose.told)[1]
        compose.until_ready()
    choose(compose.url, password)
    assert compose.inside("tasks", "cat", "/etc/muster/lab.kubeconfig") == (0, "clusters: []\n")
    with sign_in(compose.url, CHOSEN) as client:
        assert "Muster" in client.get("/people").text

    code, said = compose.inside("web", "muster-server", "check")
    assert code == 0 and "none, so no job can run" in said, said  # local jobs are off
    assert compose.healthy("web") and compose.healthy("postgres")
    for service in PROCESSES:
        about = compose.inspect(service)
        assert about["State"]["Running"], compose("logs", service)
        assert about["HostConfig"]["ReadonlyRootfs"] and about["Config"]["User"] == "10001:10001"

    redis, postgres = compose.inspect("redis"), compose.inspect("postgres")
    assert redis["Config"]["User"] == "redis"  # the image itself begins as root
    assert redis["HostConfig"]["ReadonlyRootfs"]
    assert not redis["BoundingCaps"] and len(postgres["BoundingCaps"]) == 5
    for about in (redis, postgres):
        assert "no-new-privileges" in about["HostConfig"]["SecurityOpt"]
    secrets = [compose.inside(service, "cat", f"/run/keys/{name}")[1] for service, name in (
        ("web", "secret_key"), ("web", "database_url"), ("web", "redis_url"), ("postgres", "password"), ("redis", "password"),
    )]  # fmt: skip
    assert all(len(secret) >= 48 for secret in secrets)
    shown = compose("logs") + "".join(json.dumps(compose.inspect(one)) for one in (*PROCESSES, "postgres", "redis"))
    assert not [secret for secret in secrets if secret in shown]

    engine.run("podman", "stop", compose.container("postgres"))
    until(lambda: compose.status() == 503, compose.told)
    engine.run("podman", "stop", *(compose.container(one) for one in PROCESSES))
    for one in ("watcher", "beat", "tasks", "web"):  # whatever the order, each waits by itself
        engine.run("podman", "start", compose.container(one))
    until(lambda: all("waiting: Postgres cannot be used" in compose.log(one) for one in PROCESSES), compose.told)
    assert not compose.healthy("web")
    engine.run("podman", "start", compose.container("postgres"))
    compose.until_ready()
    until(lambda: all(compose.inspect(one)["State"]["Running"] for one in PROCESSES), compose.told)

    archive = context / "muster.tar"
    backup, *restore = [line for line in lines("docs/backup.md") if line.startswith("docker compose")]
    compose.shell(backup)
    compose("down")
    assert compose.status() == 0
    compose("up", "-d")
    compose.until_ready()
    with sign_in(compose.url, CHOSEN):
        pass

    key = compose.inside("web", "cat", "/run/keys/secret_key")[1]
    compose("down", "--volumes")
    for line in restore:
        compose.shell(line)
    compose.until_ready()
    assert compose.inside("web", "cat", "/run/keys/secret_key")[1] == key
    with sign_in(compose.url, CHOSEN):
        pass
    archive.unlink()
