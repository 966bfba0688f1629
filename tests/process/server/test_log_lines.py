"""The log of the web process: each line is Muster's own, as MUSTER_LOG_FORMAT says, from its start to its end."""

import json
import subprocess
import sys

import httpx
import pytest

from controlplane.operations import processes
from tests.process.server.conftest import ROOT, Process
from tests.support import kube_away
from tests.support.patience import until

pytestmark = pytest.mark.ci


def answered(port: int, path: str = "/healthz") -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60).status_code
    except httpx.TransportError:
        return 0


def objects(said: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in said.splitlines()]


def test_every_line_is_one_object_from_start_to_end(server, database):
    with server.start("web", "--host", "127.0.0.1", "--port", str(server.port), MUSTER_LOG_FORMAT="json") as web:
        web.until_said("waiting: Postgres cannot be used")
        database.create_with_tables()
        until(lambda: answered(server.port) == 200)
        assert answered(server.port, "/nowhere") in (302, 404)
        web.end()
        lines = objects(web.said)
    assert all({"at", "level", "source", "message"} <= set(one) for one in lines)
    told = [str(one["message"]) for one in lines]
    for words in ("web: waiting: Postgres", "Started server process", "Uvicorn running on", "Finished server process"):
        assert any(words in one for one in told), told


def test_the_id_of_a_request_leads_to_the_visits_of_its_job(server, token, tmp_path):
    """From the answer that a browser or a program got, to what the tasks process says of the job's cluster."""
    local = {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": kube_away.options(tmp_path)}
    env = {"MUSTER_LOG_FORMAT": "json", "MUSTER_CLUSTERS": json.dumps({"local": local})}
    wanted = {"queue": "default", "framework": "plain", "command": ["true"]}
    with (
        server.start("web", "--host", "127.0.0.1", "--port", str(server.port), **env),
        server.start("tasks", **env) as tasks,
    ):
        until(lambda: answered(server.port) == 200)

        def led() -> bool:
            """Submit another job: the sweeper may be quicker than the doorbell, and its visits have no request."""
            sent = httpx.post(
                f"http://127.0.0.1:{server.port}/api/v1/jobs", json=wanted, timeout=60,
                headers={"Authorization": f"Bearer {token}"},
            )  # fmt: skip
            assert sent.status_code == 201, sent.text
            until(lambda: f"job {sent.json()['id']}: " in tasks.said)
            lines = [json.loads(line) for line in tasks.said.splitlines() if line.startswith("{")]
            said = [one for one in lines if str(one["message"]).startswith(f"job {sent.json()['id']}: ")]
            return sent.headers["X-Request-ID"] in {one.get("request") for one in said}

        until(led)


def test_an_error_beyond_django_is_an_object_without_secrets(server, database, tmp_path):
    """The application is Muster's within one that fails, as a defect of an outer layer would."""
    database.create_with_tables()
    words = [
        one.replace("controlplane.asgi:application", "tests.support.failing_asgi:application") for one in processes.WEB
    ]
    log = tmp_path / "failing.log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, *words, "--port", str(server.port)], env=server.env | {"MUSTER_LOG_FORMAT": "json"}, cwd=ROOT,
            stdout=out, stderr=out,
        )  # fmt: skip
    web = Process(child, log)
    try:
        until(lambda: answered(server.port) == 500)
        web.end()
    finally:
        child.kill()
    assert "hunter2" not in web.said
    (line,) = [one for one in objects(web.said) if one["source"] == "uvicorn.error" and "traceback" in one]
    assert "Exception in ASGI application" in str(line["message"])
    assert str(line["traceback"][-1]) == "RuntimeError: password=[removed] was in it"
