"""A rehearsal of the worst day: database and files are lost while jobs run, and all that is left is a backup."""

import shutil
import subprocess
import sys

import pytest

from embedded.home import remove_home
from tests.support.patience import until
from tests.system.faults.checks import read_claims
from tests.system.faults.installation import ROOT, Api, RunningInstallation
from tests.system.faults.test_minute import end_control_plane

GAP_WORDS = "restored from a backup"


def server(installation: RunningInstallation, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "controlplane.operations.server", *words], cwd=ROOT, env=installation.muster.env, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def lose_everything(installation: RunningInstallation) -> None:
    """End the servers and delete what they kept. Jobs keep running, and what they need is on their own machine."""
    end_control_plane(installation)
    remove_home(installation.folder)
    shutil.rmtree(installation.folder / "files")


def test_an_installation_is_restored_while_its_jobs_run(old, tmp_path):
    archive = tmp_path / "muster.tar"
    ended = old.submit("--lines", "20")
    until(lambda: old.api.job(ended)["phase"] == "succeeded")
    running = old.submit(nproc_per_node=2)
    paused = old.submit(secrets={"TOKEN": "kept-in-the-backup"})
    until(lambda: old.api.job(paused)["phase"] == "running")
    old.api.act(paused, "suspend")
    until(lambda: old.api.job(paused)["phase"] == "suspended")
    until(lambda: old.api.job(running)["phase"] == "running")
    until(lambda: old.api.lines(ended))
    before = old.api.job(ended), old.api.lines(ended), old.api.events(ended)

    said = server(old, "backup", str(archive))
    assert " rows of " in said
    assert archive.stat().st_mode & 0o077 == 0

    stored = len(old.api.ask("GET", f"/jobs/{running}/logs", params={"tail": 5000})["lines"])
    until(lambda: len(old.api.ask("GET", f"/jobs/{running}/logs", params={"tail": 5000})["lines"]) > stored + 20)
    lost = old.submit("--lines", "3")
    until(lambda: old.api.job(lost)["phase"] == "succeeded")
    token = old.muster.token
    lose_everything(old)
    old.start()
    told = server(old, "restore", str(archive))
    assert "may still be running" in told

    old.api = Api(old.muster.url, token)  # the one from before: what the new database had begun with is gone
    job, *rest = before
    assert {name for name, value in old.api.job(ended).items() if value != job[name]} == {"url"}  # another port
    assert [old.api.lines(ended), old.api.events(ended)] == rest
    assert old.api.job(running)["phase"] == "running"
    at = max(line["at_ms"] for line in old.api.ask("GET", f"/jobs/{running}/logs", params={"tail": 1})["lines"])
    until(lambda: old.api.ask("GET", f"/jobs/{running}/logs", params={"tail": 1})["lines"][0]["at_ms"] > at)
    old.finish(running)
    until(lambda: old.api.job(running)["is_finished"])
    found = old.api.job(running)
    assert (found["phase"], found["attempt"]) == ("succeeded", 1)
    assert any(GAP_WORDS in event["message"] for event in old.api.events(running))
    assert all(attempt == 1 for attempt, _ in read_claims(old, running))

    old.api.act(paused, "resume")
    until(lambda: old.api.job(paused)["phase"] == "running")
    old.finish(paused)
    until(lambda: old.api.job(paused)["phase"] == "succeeded")
    assert old.submit("--lines", "3") > lost


@pytest.mark.full
def test_jobs_that_moved_on_after_the_backup_do_as_the_document_says(old, tmp_path):
    """Rows of docs/backup.md: running then and ended since; waiting or suspended then and started since."""
    archive = tmp_path / "muster.tar"
    holder = old.submit(queue="narrow")
    until(lambda: old.api.job(holder)["phase"] == "running")
    waiting = old.submit(queue="narrow")
    paused, here, gone, retried = old.submit(), old.submit(), old.submit(), old.submit(max_retries=1)
    until_phase(old, "running", paused, here, gone, retried)
    old.api.act(paused, "suspend")
    until_phase(old, "suspended", paused)
    assert old.api.job(waiting)["phase"] == "queued"
    server(old, "backup", str(archive))

    old.manage("queue", "narrow", "--team", "demo", "--slots", "4")
    old.api.act(paused, "resume")
    for job in (here, gone, retried):
        old.finish(job)
    until_phase(old, "succeeded", here, gone, retried)
    until_phase(old, "running", waiting, paused)
    token = old.muster.token
    lose_everything(old)
    for job in (gone, retried):
        (attempt,) = (old.folder / "local/jobs").glob(f"{job}-*/1")
        shutil.rmtree(attempt)  # as pods are that were deleted since
        (old.shared(job) / "finish").unlink()
    old.start()
    server(old, "restore", str(archive))
    old.api = Api(old.muster.url, token)

    until_phase(old, "succeeded", here)
    until_phase(old, "failed", gone)
    assert [old.api.job(job)["attempt"] for job in (here, gone)] == [1, 1]
    until(lambda: old.api.job(retried)["attempt"] == 11 and old.api.job(retried)["phase"] == "running")
    until(lambda: not old.carriers(waiting) and not old.carriers(paused), says="attempts that are unknown now end")
    assert [old.api.job(job)["phase"] for job in (waiting, paused)] == ["queued", "suspended"]

    old.api.act(paused, "resume")
    old.finish(holder)
    until_phase(old, "running", paused, waiting)
    assert [old.api.job(job)["attempt"] for job in (waiting, paused)] == [10, 11]
    for job in (waiting, paused):
        old.finish(job)
    until_phase(old, "succeeded", paused, waiting)


def until_phase(installation: RunningInstallation, phase: str, *jobs: int) -> None:
    for job in jobs:
        until(lambda job=job: installation.api.job(job)["phase"] == phase, says=f"job {job} is {phase}")
