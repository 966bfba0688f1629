"""Faults of a minute: a stopped process, and an upgrade with a migration. Both run at once, to take only one minute."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from embedded.processes import end, identity
from tests.support.patience import until
from tests.system.faults.checks import check, read_claims
from tests.system.faults.installation import ROOT, RunningInstallation
from tests.system.faults.processes import query, refusals, second_tasks

MIGRATION = """
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "{last}")]
    operations = [
        migrations.AddField("job", "wish", models.TextField(null=True)),
        migrations.AddIndex("logsegment", models.Index(fields=["path"], name="segment_by_path")),
    ]
"""


def next_release(folder: Path) -> Path:
    """A copy of this checkout with one more migration."""
    for name in (
        "accounts",
        "agent",
        "client",
        "common",
        "controlplane",
        "embedded",
        "jobs",
        "queues",
        "static",
        "templates",
        "workspaces",
    ):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    shutil.copy2(ROOT / "manage.py", folder)
    migrations = folder / "jobs/migrations"
    last = max(path.stem for path in migrations.glob("[0-9]*.py"))
    (migrations / "9999_next_release.py").write_text(MIGRATION.format(last=last))
    return folder


def end_control_plane(installation: RunningInstallation) -> None:
    """End the control plane's processes gracefully; agents and ranks keep running, as when only the server is replaced."""
    ours = [identity(pid) for pid in installation.muster.pids.values()]
    installation.muster.kill()  # the kernel signals its children; some wait for the database, which ends as well
    for one in filter(None, ours):
        end(one, signals=((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)))


def upgrade(installation: RunningInstallation, *, seconds: float, release: Path, meanwhile) -> tuple[int, float]:
    """Upgrade under a running job; return the job, and the seconds until its lines arrived again."""
    job = installation.submit(nproc_per_node=2)
    until(lambda: installation.api.job(job)["phase"] == "running")
    until(lambda: len(read_claims(installation, job)) == 4)
    end_control_plane(installation)
    written = sum(claim.lines for claim in read_claims(installation, job).values())
    time.sleep(seconds)
    meanwhile()
    assert sum(claim.lines for claim in read_claims(installation, job).values()) > written
    since = time.time()
    installation.start(checkout=release)
    up = time.time()
    until(lambda: any(line["at_ms"] / 1000 > up for line in _last(installation, job)), says="new lines")
    return job, time.time() - since


def _last(installation: RunningInstallation, job: int) -> list[dict]:
    return installation.api.ask("GET", f"/jobs/{job}/logs", params={"tail": 1, "rank": 0})["lines"]


def finish_upgraded(installation: RunningInstallation, job: int) -> None:
    assert query(installation, "SELECT wish FROM jobs_job WHERE id = %s", job) == [(None,)]
    installation.finish(job)
    until(lambda: installation.api.job(job)["is_finished"])
    check(installation, job, attempts=1)
    following = installation.submit("--lines", "3")
    until(lambda: installation.api.job(following)["is_finished"])
    check(installation, following, attempts=1)


def test_a_job_keeps_running_through_an_upgrade_with_a_migration(old, matrix, tmp_path):
    job, took = upgrade(old, seconds=5, release=next_release(tmp_path / "next"), meanwhile=lambda: None)
    matrix.add_all("upgrade, 5 s away", {"running": took})
    finish_upgraded(old, job)


@pytest.mark.full
def test_a_process_stopped_for_a_minute_and_an_upgrade_of_a_minute(installation, old, phase_jobs, matrix, tmp_path):
    release = next_release(tmp_path / "next")
    installation.arm("cluster.apply.before", number="STOP")
    held = installation.submit("--lines", "20")
    stopped = until(lambda: installation.fired("cluster.apply.before"))
    began = time.monotonic()
    with second_tasks(installation):
        job, took = upgrade(
            old, seconds=61, release=release, meanwhile=lambda: phase_jobs.until_phase(held, "succeeded")
        )
        matrix.add_all("upgrade, 60 s away", {"running": took})
        history = installation.api.events(held)
        assert time.monotonic() - began > 60
        os.kill(stopped, signal.SIGCONT)
        until(lambda: refusals(installation, held), says="the refusal")
    matrix.add("SIGSTOP tasks, 60 s", "cluster.apply.before", "refused")
    assert installation.api.events(held) == history
    phase_jobs.verify(held, "succeeded", attempts=1)
    finish_upgraded(old, job)
