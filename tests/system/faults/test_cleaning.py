"""A process dies at every fault point of cleanup; then the cleanup runs again."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from muster.client import Client

from tests.support.patience import until
from tests.system.faults.checks import check, check_told
from tests.system.faults.installation import CODE, RunningInstallation


def _both(*names: str) -> list[str]:
    return [f"{name}.{when}" for name in names for when in ("before", "after")]


PACKING = _both("packing.save", "packing.replace", "logs.delete")
COLLECTING = _both("collecting.rows", "collecting.mark", "collecting.folder")
GARBAGE = _both("garbage.expire", "garbage.sweep", "garbage.renew", "files.delete")
LATER = (
    "from datetime import timedelta; from django.utils import timezone; now = timezone.now() + timedelta(days=9999); "
)
ROLLING = _both("rollups.turn")
FORGETTING = _both("deliveries.forget")
REMOVING = _both("removing.rows", "removing.job", "removing.folder", "removing.mark")
FORGET = """
from jobs.models import Delivery
from jobs.webhooks import sending
sending.forget(now=now)
print("left", Delivery.objects.filter(job={job}).exists())
"""
REMOVE = """
from accounts.models import AuditEntry
from jobs.logs import removal
from jobs.models import Job, RemovedJob
removal.remove_due(now=now)
from django.core.files.storage import default_storage
print("left", Job.objects.filter(pk={job}).count(), len(default_storage.listdir("logs/{run}/1")[1]) if default_storage.exists("logs/{run}/1") else 0)
print("entries", AuditEntry.objects.filter(act="job.remove", target_id="{job}").count(), RemovedJob.objects.filter(pk={job}, files_deleted_at__isnull=False).count())
"""
ROLL = """
from jobs.analysis import rollups
from jobs.models import MetricChunk, MetricRollup
rollups.roll_up(now=now)
chunks = MetricChunk.objects.filter(job={job}, name="system/cpu")
begins = {{int(at // 10) * 10 for times in chunks.values_list("times", flat=True) for at in times}}
rows = MetricRollup.objects.filter(job={job}, name="system/cpu", width=10)
print("whole", {{row.begins for row in rows if not row.is_due and row.ranks}} == begins, bool(begins))
"""
PACK = """
from jobs.logs import compaction
from jobs.models import Job
job = Job.objects.get(pk={job})
for replica in job.replicas.all():
    compaction.pack(replica.pk)
compaction.sweep(run=job.run, attempt=1, now=now)
from django.core.files.storage import default_storage
print("files", len(default_storage.listdir(f"logs/{{job.run}}/1")[1]))
"""


def until_whole(installation: RunningInstallation, code: str, points: list[str], look: Callable[[], object]) -> str:
    """Run the code again after each crash, call `look` in between, and return the output of the last run."""
    installation.arm(*points)
    for _ in range(len(points) + 1):
        ended = installation.command("shell", "-c", LATER + code)
        look()
        if ended.returncode == 0:
            assert [point for point in points if not installation.fired(point)] == []
            return ended.stdout
        assert ended.returncode == -9, ended.stderr
    raise AssertionError(f"it never came to its end: {points}")


@pytest.fixture
def ended(installation) -> int:
    """A finished job with a log in many files."""
    job = installation.submit("--lines", "60", nodes=1)
    until(lambda: installation.api.job(job)["phase"] == "succeeded")
    check(installation, job)
    return job


@pytest.mark.soak(guards=("jobs/logs", "jobs/analysis/rollups.py", "jobs/webhooks", "workspaces"))
def test_a_crash_while_packing_loses_no_line(installation, matrix, ended):
    said = until_whole(installation, PACK.format(job=ended), PACKING, lambda: check(installation, ended))
    assert said.split()[-2:] == ["files", "1"]
    matrix.add("crash point", f"{len(PACKING)} of packing", "every line is there")


@pytest.mark.soak(guards=("jobs/logs", "jobs/analysis/rollups.py", "jobs/webhooks", "workspaces"))
def test_a_crash_while_rolling_up_leaves_no_bucket_out(installation, matrix, ended):
    said = until_whole(installation, ROLL.format(job=ended), ROLLING, lambda: None)
    assert said.split()[-3:] == ["whole", "True", "True"]
    matrix.add("crash point", f"{len(ROLLING)} of rolling up", "every bucket is there")


@pytest.mark.soak(guards=("jobs/logs", "jobs/analysis/rollups.py", "jobs/webhooks", "workspaces"))
def test_a_crash_while_forgetting_deliveries_leaves_none(installation, matrix, ended):
    check_told(installation, ended, "succeeded")
    until(lambda: not _waiting(installation), says="everything delivered")
    said = until_whole(installation, FORGET.format(job=ended), FORGETTING, lambda: None)
    assert said.split()[-2:] == ["left", "False"]
    matrix.add("crash point", f"{len(FORGETTING)} of forgetting", "no delivery is left")


def _waiting(installation: RunningInstallation) -> bool:
    code = "from jobs.models import Delivery; print(Delivery.objects.filter(next_try_at__isnull=False).exists())"
    return installation.manage("shell", "-c", code).split()[-1] == "True"


@pytest.mark.soak(guards=("jobs/logs", "jobs/analysis/rollups.py", "jobs/webhooks", "workspaces"))
def test_a_crash_while_deleting_old_logs_does_not_affect_running_jobs(installation, matrix, phase_jobs, ended):
    """Jobs of earlier cells lose their logs too; each was checked when it ended."""
    going = installation.submit()
    phase_jobs.until_phase(going, "running")
    until_whole(
        installation,
        "from jobs.logs.retention import collect; collect(now=now)",
        COLLECTING,
        lambda: installation.api.lines(ended),
    )
    (line,) = installation.api.lines(ended)
    assert line["is_gap"] and "deleted" in line["text"]
    assert not list((installation.folder / "local/jobs").glob(f"{ended}-*"))
    installation.finish(going)
    phase_jobs.until_phase(going, "succeeded")
    phase_jobs.verify(going, "succeeded", attempts=1)
    matrix.add("crash point", f"{len(COLLECTING)} of collecting", "running jobs stay")


@pytest.mark.soak(guards=("jobs/logs", "jobs/analysis/rollups.py", "jobs/webhooks", "workspaces"))
def test_a_crash_while_removing_a_job_leaves_it_whole_or_gone(installation, matrix, phase_jobs):
    job = installation.submit("--lines", "60", nodes=1, ttl_seconds=86400)
    until(lambda: installation.api.job(job)["phase"] == "succeeded")
    check(installation, job)
    check_told(installation, job, "succeeded")
    until(lambda: not _waiting(installation), says="everything delivered")
    going = installation.submit(ttl_seconds=1)
    phase_jobs.until_phase(going, "running")
    (run,) = (path.name for path in (installation.folder / "local/jobs").glob(f"{job}-*"))
    seen = []

    def look() -> None:
        """A job that is still listed can be read, whatever of its output is gone."""
        answer = installation.api.ask("GET", "/jobs", params={"limit": 200})["results"]
        seen.append(job in [one["id"] for one in answer])
        if seen[-1]:
            assert installation.api.job(job)["phase"] == "succeeded" and installation.api.events(job)
            installation.api.lines(job)

    said = until_whole(installation, REMOVE.format(job=job, run=run), REMOVING, look)
    assert said.split()[-6:] == ["left", "0", "0", "entries", "1", "1"]
    assert seen == sorted(seen, reverse=True) and seen[0] and not seen[-1]
    assert not list((installation.folder / "local/jobs").glob(f"{job}-*"))
    installation.finish(going)
    phase_jobs.until_phase(going, "succeeded")
    phase_jobs.verify(going, "succeeded", attempts=1)
    matrix.add("crash point", f"{len(REMOVING)} of removing", "one entry, no file, running jobs stay")


@pytest.mark.soak(guards=("jobs/logs", "jobs/analysis/rollups.py", "jobs/webhooks", "workspaces"))
def test_a_crash_of_the_code_collector_keeps_code_in_use(installation, matrix, tmp_path, ended):
    """Two workspaces share a pack: the unused one is deleted, and the pack is rewritten for the other."""
    kept = folder(tmp_path / "kept", text=str(time.time_ns()))
    unused = folder(tmp_path / "unused", text=(kept / "new.txt").read_text())
    (unused / "large.txt").write_text("".join(str(time.time_ns() + number) for number in range(20_000)))
    with Client(installation.muster.url, installation.muster.token) as client:
        gone, stays = (client.upload(one, queue="default").id for one in (unused, kept))
    job = installation.api.submit("--lines", "1", workspace=stays, nodes=1)

    def look() -> None:
        assert (kept / "new.txt").read_text() in installation.api.ask("GET", f"/workspaces/{stays}/files/new.txt")

    until_whole(installation, "from workspaces.garbage import collect; collect(now=now)", GARBAGE, look)
    assert gone not in [one["id"] for one in installation.api.ask("GET", "/workspaces")["results"]]
    until(lambda: installation.api.job(job)["phase"] == "succeeded")
    check(installation, job)
    matrix.add("crash point", f"{len(GARBAGE)} of the collector", "what is used stays")


def folder(path: Path, *, text: str) -> Path:
    shutil.copytree(CODE, path)
    (path / "new.txt").write_text(text)
    return path
