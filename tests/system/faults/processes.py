"""A second tasks process of an installation, and checks of logs and the database."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.system.faults.installation import ROOT, RunningInstallation

TASKS = ("-m", "celery", "-A", "controlplane.celery", "worker", "--pool", "threads", "--concurrency", "4")
LATE = "this visit was late"  # jobs/control/reconciler.py


@contextlib.contextmanager
def second_tasks(installation: RunningInstallation, checkout: Path = ROOT) -> Iterator["subprocess.Popen[bytes]"]:
    """Another tasks process of the same installation, as larger installations have; of another release by `checkout`."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING", "-n", "second@%h")
    path = os.pathsep.join([str(checkout), str(checkout / "client")])
    with open(installation.folder / "logs/tasks-2.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, *TASKS, *quiet], env={**installation.muster.env, "PYTHONPATH": path}, cwd=checkout, stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def query(installation: RunningInstallation, text: str, *values: object) -> list[tuple]:
    with psycopg.connect(installation.muster.env["DATABASE_URL"]) as connection:
        return connection.execute(text, values).fetchall()


def lease_token(installation: RunningInstallation, job: int) -> int:
    return int(query(installation, "SELECT lease_token FROM jobs_job WHERE id = %s", job)[0][0])


def refusals(installation: RunningInstallation, job: int) -> int:
    """How often a late visit to this job was refused because it had lost the lease."""
    found = 0
    for name in ("tasks", "tasks-2"):
        with contextlib.suppress(FileNotFoundError):
            found += (installation.folder / f"logs/{name}.log").read_text().count(f"job {job}: {LATE}")
    return found
