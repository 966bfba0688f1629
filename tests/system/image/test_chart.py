"""`helm install` of our chart on a real node: Postgres, Redis, the four processes and the jobs are pods of one cluster."""

import json

import psycopg
import pytest
from muster.client import Client
from muster.jobs.models import Job

from tests.support import audit_log
from tests.support.patience import until
from tests.system.image.installed import (
    A_TABLE,
    ACCOUNT,
    COUNTING,
    JOBS,
    PROCESSES,
    SPACE,
    VOLUMES,
    Installed,
    are_ready,
    first_token,
    forwarded,
    images,
    install,
    lose_volumes,
    numbers,
    offer_volumes,
    push,
    push_next,
    reached,
    run_sample_job,
)
from tests.system.image.readme import lines

SOAK = pytest.mark.soak(guards=("Dockerfile", "helm", "deploy", "requirements/server.lock", "controlplane/operations"))


@pytest.mark.ci(
    guards=["Dockerfile", "helm", "deploy", "requirements/server.lock", "docs/helm.md", "controlplane/operations"]
)
def test_the_readmes_lines_install_it_and_jobs_run_through_an_upgrade(installed, context, noted):
    push(installed, context)
    with noted.seconds("helm install until ready"):
        notes, password = install(installed)
    assert "helm -n muster test muster" in notes
    with forwarded(installed) as url:
        token = first_token(url, password)
    allowed = "{" + installed.node.cable.node + "}"
    installed.upgrade(tag="0.1.0", allowedHosts=allowed, clusters__kubernetes__CLAIMS__packages="packages")
    until(lambda: are_ready(installed), installed.states)
    with reached(installed):
        run_sample_job(installed, installed.url, token)
        client = Client(installed.url, token)
        job = _counting(client)
        push_next(installed, context, tag="0.1.1", operations=A_TABLE)
        with noted.seconds("helm upgrade with a migration"):
            installed.upgrade(tag="0.1.1")
        until(lambda: images(installed) == {f"{installed.registry}/muster:0.1.1"}, installed.states)
        assert _tables(installed, "queues_of_next_release"), "the new image's migration was not applied"
        _goes_on_without_a_gap(client, job)
        assert installed.helm("test", "muster", "--timeout", "5m")
        _no_secret_is_shown(installed, password)
        client.cancel(job.id)
        until(lambda: client.job(job.id).phase == "cancelled", lambda: client.job(job.id))
    asked = audit_log.asked(installed.plane.audit_log, user=ACCOUNT)
    assert ("", "pods", "create") in asked
    assert not [right for right, codes in asked.items() if 403 in codes], "the chart's Role lacks a right"
    installed.helm("uninstall", "muster", "--wait")
    until(lambda: not installed.pods(), installed.states)
    assert installed.left() == {
        "secrets/muster-secrets",
        "namespaces/muster-jobs",
        *(f"persistentvolumeclaims/{name}" for name in VOLUMES),
    }


@SOAK
def test_jobs_run_through_a_rollback_and_the_loss_of_every_pod(installed, context):
    _empty(installed)
    push(installed, context)
    _, password = install(installed, "--set allowedHosts={" + installed.node.cable.node + "}")
    two = {f"{part}__replicas": "2" for part in ("web", "tasks", "watcher")}
    installed.upgrade(tag="0.1.0", **two)
    until(lambda: are_ready(installed, count=7), installed.states)
    with reached(installed):
        client = Client(installed.url, first_token(installed.url, password))
        job = _counting(client)
        push_next(installed, context, tag="0.1.1", operations=A_TABLE)
        installed.upgrade(tag="0.1.1")
        until(lambda: images(installed) == {f"{installed.registry}/muster:0.1.1"}, installed.states)
        installed.helm("rollback", "muster", "2", "--wait")
        until(lambda: images(installed) == {f"{installed.registry}/muster:0.1.0"}, installed.states)
        for part in PROCESSES:
            victim = installed.pods(component=part)[0]["metadata"]["name"]
            installed.admin.request(
                "DELETE", f"/api/v1/namespaces/{SPACE}/pods/{victim}", json={"gracePeriodSeconds": 0}
            ).raise_for_status()
        until(lambda: are_ready(installed, count=7), installed.states)
        _goes_on_without_a_gap(client, job)
        client.cancel(job.id)
        until(lambda: client.job(job.id).phase == "cancelled", lambda: client.job(job.id))
    installed.helm("uninstall", "muster", "--wait")


@SOAK
def test_it_is_restored_after_its_volumes_were_lost_while_a_job_runs(installed, context):
    """By the lines of docs/backup.md. The Secret is still there, as `helm uninstall` leaves it."""
    backup, key, old_keys, _, restore = [
        line for line in lines("docs/backup.md") if "kubectl" in line or "docker run" in line or "helm" in line
    ]
    place = installed.node.folder / "restored"
    place.mkdir()
    reachable = "--set allowedHosts={" + installed.node.cable.node + "}"
    _empty(installed)
    push(installed, context)
    _, password = install(installed, reachable)
    with reached(installed):
        client = Client(installed.url, first_token(installed.url, password))
        job = _counting(client)
        until(lambda: len(numbers(client, job.id)) > 10, lambda: (client.job(job.id), installed.states()))
        installed.shell(backup, cwd=place)
    installed.helm("uninstall", "muster", "--wait")
    until(lambda: not installed.pods(), installed.states)
    lose_volumes(installed.admin)
    offer_volumes(installed.admin, installed.node)

    assert installed.shell(key, cwd=place).strip() == installed.secret()["secret_key"]
    assert installed.shell(old_keys, cwd=place) == ""
    install(installed, reachable)
    installed.shell(restore, cwd=place)
    with reached(installed):
        seen = max(numbers(client, job.id))
        until(lambda: max(numbers(client, job.id)) > seen + 50, lambda: (client.job(job.id), installed.states()))
        found = client.job(job.id)
        assert (found.attempt, found.phase) == (1, "running")
        client.cancel(job.id)
        until(lambda: client.job(job.id).phase == "cancelled", lambda: client.job(job.id))
    installed.helm("uninstall", "muster", "--wait")


def _empty(installed: Installed) -> None:
    """Remove what the test before left."""
    if installed.secret():
        lose_volumes(installed.admin)
        offer_volumes(installed.admin, installed.node)


def _counting(client: Client) -> Job:
    job = client.submit(["python3", "-c", COUNTING], queue="train", directory=None, framework="plain", nodes=1)
    until(lambda: client.job(job.id).phase == "running", lambda: client.job(job.id))
    return job


def _goes_on_without_a_gap(client: Client, job: Job) -> None:
    seen = max(numbers(client, job.id))
    until(lambda: max(numbers(client, job.id)) > seen + 5, lambda: client.job(job.id))
    assert client.job(job.id).attempt == 1 and client.job(job.id).phase == "running"
    found = numbers(client, job.id)
    assert found == list(range(len(found))), "a line was lost"


def _tables(installed: Installed, name: str) -> int:
    (server,) = installed.pods(component="postgres")
    address = installed.secret()["database_url"].replace("muster-postgres", server["status"]["podIP"])
    with psycopg.connect(address) as session:
        row = session.execute("SELECT count(*) FROM pg_tables WHERE tablename = %s", [name]).fetchone()
    return int(row[0])


def _no_secret_is_shown(installed: Installed, password: str) -> None:
    """In no log, no description, and not in what helm tells of the values; the password in the migration's log only."""
    secrets = [value for name, value in installed.secret().items() if name.endswith(("key", "password"))]
    shown = installed.helm("get", "values", "muster", "--all") + json.dumps(installed.pods() + installed.pods(JOBS))
    for space in (SPACE, JOBS):
        shown += installed.shell(
            f"kubectl -n {space} describe all,secrets,configmaps,persistentvolumeclaims,serviceaccounts"
        )
    logs = {one["metadata"]["name"]: installed.log(one) for one in installed.pods()}
    of_migration = {name: log for name, log in logs.items() if "-migrate-" in name}
    assert of_migration and len(secrets) == 3
    assert not [secret for secret in secrets if secret in shown + "".join(logs.values())]
    assert password not in shown + "".join(log for name, log in logs.items() if name not in of_migration)
