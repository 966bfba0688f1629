"""More processes of an installation than its supervisor starts, and what they said and left in the database."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psycopg

from tests.faults.house import ROOT, House

TASKS = ("-m", "celery", "-A", "controlplane.celery", "worker", "--pool", "threads", "--concurrency", "4")
LATE = "this visit was late"  # jobs/control/reconciler.py


@contextlib.contextmanager
def second_tasks(house: House) -> Iterator["subprocess.Popen[bytes]"]:
    """Another tasks process of the same installation, as a larger one has."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING", "-n", "second@%h")
    with open(house.folder / "logs/tasks-2.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, *TASKS, *quiet], env=house.muster.env, cwd=ROOT, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def query(house: House, text: str, *values: object) -> list[tuple]:
    with psycopg.connect(house.muster.env["DATABASE_URL"]) as connection:
        return connection.execute(text, values).fetchall()


def lease_token(house: House, job: int) -> int:
    return int(query(house, "SELECT lease_token FROM jobs_job WHERE id = %s", job)[0][0])


def refusals(house: House, job: int) -> int:
    """How often a late visit to this job was told that it is not its any more."""
    found = 0
    for name in ("tasks", "tasks-2"):
        with contextlib.suppress(FileNotFoundError):
            found += (house.folder / f"logs/{name}.log").read_text().count(f"job {job}: {LATE}")
    return found
