"""Processes of the release before work beside those of today, on the same jobs: neither loses what the other wrote."""

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from jobs.core.lifecycle import ON_CLUSTER
from tests.support.patience import until
from tests.system.faults.checks import check
from tests.system.faults.installation import ROOT, RunningInstallation, furnished
from tests.system.faults.processes import query, second_tasks
from tests.system.faults.test_minute import end_control_plane

BEFORE = "0e4e67deefb0dd16a3515f3fce2abc07a43391b6"  # its processes know no row of an attempt
ROUNDS = 4
GUARDS = ["jobs/models", "jobs/migrations", "jobs/control", "jobs/analysis/attempts.py"]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the release before, with its agent."""
    folder = tmp_path_factory.mktemp("before")
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", BEFORE], capture_output=True, check=False)
    assert packed.returncode == 0, f"the history has no {BEFORE}; fetch it whole: {packed.stderr.decode()}"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        tar.extractall(folder, filter="data")
    subprocess.run([sys.executable, "-m", "agent.build"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def upgraded(before: Path, tmp_path: Path) -> Iterator[RunningInstallation]:
    with furnished(tmp_path / "data", before) as found:
        yield found


OWNERS = """
CREATE TABLE owners (owner text PRIMARY KEY);
CREATE FUNCTION note_owner() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO owners VALUES (NEW.lease_owner) ON CONFLICT DO NOTHING; RETURN NULL; END $$;
CREATE TRIGGER note_owner AFTER UPDATE OF lease_owner ON jobs_job
FOR EACH ROW WHEN (NEW.lease_owner <> '') EXECUTE FUNCTION note_owner()
"""


def note_owners(installation: RunningInstallation) -> None:
    """Let the database note who has taken a job's lease."""
    with psycopg.connect(installation.muster.env["DATABASE_URL"]) as connection:
        connection.execute(OWNERS)


def visitors(installation: RunningInstallation) -> set[int]:
    """The processes that have visited jobs."""
    return {int(owner.split(":")[-2]) for (owner,) in query(installation, "SELECT owner FROM owners")}


def mixed_jobs(installation: RunningInstallation) -> dict[int, str]:
    """Jobs that end in every way, with the phase that each must end in."""
    jobs: dict[int, str] = {}
    for _ in range(ROUNDS):
        jobs[installation.submit("--lines", "5", nodes=1)] = "succeeded"
        jobs[installation.submit("--lines", "5", "--fail", nodes=1, max_retries=1)] = "failed"
        jobs[installation.submit("--lines", "5")] = "succeeded"
        for verb, phase in (("cancel", "cancelled"), ("suspend", "succeeded")):
            job = installation.submit(nodes=1, grace_seconds=5)
            jobs[job] = phase
            until(lambda job=job: installation.api.job(job)["phase"] == "running", says=f"job {job} runs")
            installation.api.act(job, verb)
            if verb == "suspend":
                until(lambda job=job: installation.api.job(job)["phase"] == "suspended", says=f"job {job} is suspended")
                installation.api.act(job, "resume")
                until(lambda job=job: installation.api.job(job)["phase"] == "running", says=f"job {job} runs again")
                installation.finish(job)
    return jobs


def until_ended(installation: RunningInstallation, jobs: dict[int, str]) -> None:
    for job, phase in jobs.items():
        until(lambda job=job: installation.api.job(job)["is_finished"], says=f"job {job} ends")
        assert installation.api.job(job)["phase"] == phase, installation.api.events(job)


def told(installation: RunningInstallation, job: int) -> list[tuple]:
    """The attempts of a job as its history has them: number, whether it ran, and the phase after it."""
    found: dict[int, list] = {}
    for event in installation.api.events(job):
        if event["kind"] != "step" or not event["attempt"] or found.get(event["attempt"], ["", ""])[1]:
            continue
        one = found.setdefault(event["attempt"], [False, ""])
        one[0] |= event["phase"] == "running"
        one[1] = "" if event["phase"] in ON_CLUSTER else event["phase"]
    return [(number, *one) for number, one in found.items()]


def rows(installation: RunningInstallation, job: int) -> list[tuple]:
    text = "SELECT number, running_at IS NOT NULL, outcome FROM jobs_attempt WHERE job_id = %s ORDER BY number"
    return query(installation, text, job)


@pytest.mark.ci(guards=GUARDS)
def test_processes_of_two_releases_launch_retry_suspend_and_end_the_same_jobs(upgraded, before):
    installation = upgraded
    kept = installation.submit(nodes=1)
    rested = installation.submit(nodes=1, grace_seconds=5)
    done = installation.submit("--lines", "3", nodes=1)
    for job in (kept, rested):
        until(lambda job=job: installation.api.job(job)["phase"] == "running")
    installation.api.act(rested, "suspend")
    until(lambda: installation.api.job(rested)["phase"] == "suspended" and installation.api.job(done)["is_finished"])

    # the release before, migrated beside its running processes, and a process of today
    installation.manage("migrate", checkout=ROOT)
    note_owners(installation)
    with second_tasks(installation) as second:
        jobs = mixed_jobs(installation)
        until_ended(installation, jobs)
        assert {installation.pid("tasks"), second.pid} <= visitors(installation)
    end_control_plane(installation)
    # today's, and a process of the release before
    installation.start(checkout=ROOT)
    with second_tasks(installation, before) as second:
        jobs |= (more := mixed_jobs(installation))
        until_ended(installation, more)
        installation.api.act(rested, "resume")
        until(lambda: installation.api.job(rested)["phase"] == "running")
        for job in (kept, rested):
            installation.finish(job)
        jobs |= {kept: "succeeded", rested: "succeeded", done: "succeeded"}
        until_ended(installation, jobs)
        assert {installation.pid("tasks"), second.pid} <= visitors(installation)

    installation.manage("backfill_attempts")
    for job, phase in jobs.items():
        assert rows(installation, job) == told(installation, job), job
        if phase == "succeeded":
            check(installation, job, attempts=len(told(installation, job)))
    for table in ("jobs_jobevent", "jobs_replica", "jobs_attemptfailure"):
        text = f"SELECT count(*) FROM {table} WHERE attempt > 0 AND launch_id IS NULL"
        assert query(installation, text) == [(0,)], table
