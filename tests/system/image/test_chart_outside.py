"""The chart with servers outside of it, by the lines of docs/helm.md: everything by TLS, and migrations as a hook.

Postgres and Redis are the tests' own, behind fronts with TLS on this machine's end of the node's cable. So is the way to
the pages, which agents take too.
"""

import os
import re
import socket
import textwrap
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from muster.client import Client

from rig import lending
from tests.support import tls
from tests.support.patience import until
from tests.system.image.installed import (
    A_TABLE,
    CHECKOUT,
    COUNTING,
    PORT,
    PROCESSES,
    SPACE,
    Installed,
    are_ready,
    first_token,
    images,
    lose_volumes,
    numbers,
    push,
    push_next,
    reached,
    run_sample_job,
)

pytestmark = pytest.mark.soak(
    guards=("Dockerfile", "helm", "deploy", "requirements/server.lock", "controlplane/operations")
)
HALF_MADE = """
    migrations.RunSQL("CREATE TABLE queues_half_made (id integer)"),
    migrations.RunSQL("ALTER TABLE queues_queue ADD COLUMN name text"),
"""


@dataclass
class Outside:
    """Servers of the platform's own; `ca` is the certificate of who signed theirs, as a file."""

    ca: Path
    database: str  # postgres://...
    redis: str  # rediss://...
    pages: str  # https://...
    direct: str  # the same database without TLS, for the test itself
    fronts: list[tls.Front]


@pytest.fixture
def outside(installed, tmp_path, monkeypatch) -> Iterator[Outside]:
    host = installed.node.cable.host
    ca, pem = tls.authority(tmp_path, "platform", host)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))  # what people set whose authority is their own
    name = f"chart_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as session:
        session.execute(f'CREATE DATABASE "{name}"')
    known = urlsplit(os.environ["DATABASE_URL"])
    with (
        tls.front(pem, tls.to_postgres, is_postgres=True, address=host) as postgres,
        tls.front(pem, tls.to_redis, address=host) as redis,
        tls.front(pem, lambda: socket.create_connection((installed.node.cable.node, PORT)), address=host) as pages,
    ):
        user = known.netloc.rpartition("@")[0]
        password = urlsplit(os.environ["REDIS_URL"]).password
        yield Outside(
            ca, f"postgres://{user}@{host}:{postgres.port}/{name}", f"rediss://:{password}@{host}:{redis.port}/0",
            f"https://{host}:{pages.port}", known._replace(path=f"/{name}").geturl(), [postgres, redis, pages],
        )  # fmt: skip
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as session:
        session.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def place(installed, outside, tmp_path) -> Path:
    """A folder with what a person has at hand: the authority's certificate and values.yaml."""
    if installed.secret():  # a test before tried the chart out
        lose_volumes(installed.admin)
        installed.admin.delete(f"/api/v1/namespaces/{SPACE}/secrets/muster-secrets").raise_for_status()
    (tmp_path / "ca.crt").write_bytes(outside.ca.read_bytes())
    values = {
        "image": {"repository": f"{installed.registry}/muster"},
        "publicUrl": outside.pages,
        "allowedHosts": [installed.node.cable.node],
        "secrets": {"existing": "muster"},
        "clusterFiles": "muster-files",
        "data": {"existingClaim": "files"},
        "clusters": {
            "kubernetes": {
                "IMAGE": f"{installed.registry}/train:1", "CONTROL_URL": outside.pages, "CONTROL_CA": outside.ca.read_text(),
                "CLAIMS": {"packages": "packages"},
            }
        },
        "settings": {"MUSTER_DB_POOL": "4"},
        "beat": {"replicas": 2},
    }  # fmt: skip
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    return tmp_path


def lines_of_helm(outside: Outside) -> tuple[str, str, str, str]:
    """The lines of docs/helm.md for real work: make the namespace, two Secrets, install."""
    text = (CHECKOUT / "docs/helm.md").read_text()
    block = textwrap.dedent(re.search(r"^   ```\n(.*?)^   ```$", text, re.S | re.M)[1]).replace("\\\n", "")
    namespace, files, secret = block.strip().splitlines()
    secret = secret.replace("postgres://USER:PASSWORD@HOST:5432/NAME", outside.database)
    secret = secret.replace("rediss://:PASSWORD@HOST:6379/0", outside.redis)
    assert "HOST" not in secret
    install = re.search(r"`(helm install muster helm/muster -n muster -f values\.yaml)`", text)[1]
    return namespace, files, secret, install.replace("helm/muster", str(CHECKOUT / "helm/muster"))


def test_it_runs_by_tls_and_a_migration_that_fails_changes_nothing(installed, outside, place, context):
    namespace, files, secret, install = lines_of_helm(outside)
    push(installed, context)
    admin, chart = installed.admin, str(CHECKOUT / "helm/muster")
    if admin.get(f"/api/v1/namespaces/{SPACE}").status_code == 404:
        installed.shell(namespace)
    until(lambda: admin.get(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default").status_code == 200, installed.states)
    said = installed.helm_refuses("install", "muster", chart, "-f", str(place / "values.yaml"))
    assert "secrets.existing names the Secret muster, which does not exist in namespace muster" in said
    for line in (files, secret):
        installed.shell(line, cwd=place)
    offer_files(installed)
    installed.shell(install, cwd=place)
    until(lambda: are_ready(installed, count=8), installed.states)
    logs = "kubectl -n muster logs job/muster-migrate-1"  # the tables are there before it says this
    password = until(lambda: re.search(r"admin signs in with (\S+) within", installed.shell(logs)), installed.states)[1]
    with reached(installed):
        token = first_token(outside.pages, password)
        came = outside.fronts[2].secured
        run_sample_job(installed, outside.pages, token)
        assert outside.fronts[2].secured > came + 2, "agents did not come by TLS"
        assert all(front.secured for front in outside.fronts)
        assert installed.helm("test", "muster", "--timeout", "5m")
        leads = ["beat: this process leads" in installed.log(one) for one in installed.pods(component="beat")]
        assert sorted(leads) == [False, True]

        client = Client(outside.pages, token)
        job = client.submit(["python3", "-c", COUNTING], queue="train", directory=None, framework="plain", nodes=1)
        until(lambda: client.job(job.id).phase == "running", lambda: client.job(job.id))
        before = pods_of_processes(installed)
        push_next(installed, context, tag="0.1.2", operations=HALF_MADE)
        said = installed.helm_refuses(
            "upgrade", "muster", chart, "--reuse-values", "--timeout", "8m", "--set", "image.tag=0.1.2"
        )
        assert re.search(
            r"migration queues\.9999_of_next_release failed and left nothing of itself: column \S+ of", said
        ), said
        assert pods_of_processes(installed) == before and not has_table(outside, "queues_half_made")

        push_next(installed, context, tag="0.1.1", operations=A_TABLE)
        installed.upgrade(tag="0.1.1")
        until(lambda: images(installed) == {f"{installed.registry}/muster:0.1.1"}, installed.states)
        assert has_table(outside, "queues_of_next_release")
        seen = max(numbers(client, job.id))
        until(lambda: max(numbers(client, job.id)) > seen + 5, lambda: client.job(job.id))
        found = numbers(client, job.id)
        assert (found, client.job(job.id).attempt) == (list(range(len(found))), 1), "a line was lost"
        client.cancel(job.id)
        until(lambda: client.job(job.id).phase == "cancelled", lambda: client.job(job.id))

    installed.shell("kubectl -n muster create secret generic lacking --from-literal=secret_key=x")
    said = installed.helm_refuses("upgrade", "muster", chart, "--reuse-values", "--set", "secrets.existing=lacking")
    assert "the Secret lacking in namespace muster has no key database_url" in said
    installed.helm("uninstall", "muster", "--wait")
    until(lambda: not installed.pods(), installed.states)
    mine = {"secrets/muster", "secrets/muster-files", "secrets/lacking", "persistentvolumeclaims/files"}
    assert installed.left() == {*mine, "namespaces/muster-jobs"}
    for one in mine:
        admin.delete(f"/api/v1/namespaces/{SPACE}/{one}").raise_for_status()


def offer_files(installed: Installed) -> None:
    """The claim for code and logs, which many pods may mount."""
    folder = installed.node.folder / "files"
    folder.mkdir()
    os.chown(folder, 10001, 10001)
    lending.claim(installed.admin, "files", path=str(folder), namespace=SPACE)


def pods_of_processes(installed: Installed) -> set[str]:
    return {one["metadata"]["name"] for part in PROCESSES for one in installed.pods(component=part)}


def has_table(outside: Outside, name: str) -> bool:
    with psycopg.connect(outside.direct) as session:
        return session.execute("SELECT 1 FROM pg_tables WHERE tablename = %s", [name]).fetchone() is not None
