"""The digits job with real torchrun and PyTorch through some of the faults: it keeps training, or resumes from its checkpoint."""

import os
import signal
import time

import pytest
from muster.client import Client

from tests.support.patience import until
from tests.system.faults.checks import check_steps
from tests.system.faults.installation import ROOT

pytestmark = pytest.mark.soak(guards=("jobs/control", "embedded"))


def submit(installation, *arguments: str, **asked) -> int:
    with Client(installation.muster.url, installation.muster.token) as client:
        return client.submit(
            ["torchrun", "ddp_digits.py", *arguments], queue="default", directory=ROOT / "examples", nodes=2,
            nproc_per_node=1, **asked,
        ).id  # fmt: skip


def texts(installation, job: int) -> list[str]:
    page = installation.api.ask("GET", f"/jobs/{job}/logs", params={"tail": 2000})
    return [line["text"] for line in page["lines"]]


def until_text(installation, job: int, words: str) -> None:
    until(
        lambda: any(words in text for text in texts(installation, job)),
        seconds=180,
        says=f"{words!r} in the log of job {job}",
    )


def finished(installation, job: int) -> dict:
    until(lambda: installation.api.job(job)["is_finished"], seconds=240, says=f"job {job} over")
    until(lambda: not installation.carriers(job), says=f"job {job} left processes")
    check_steps(installation.api.events(job))
    return installation.api.job(job)


def test_training_survives_the_control_plane_and_resumes_from_its_checkpoint(installation, matrix):
    """Web, tasks, Redis and Postgres are killed one after the other during training, then one of its agents."""
    job = submit(installation, "--epochs", "30", "--save-every", "20", "--step-delay", "0.05", max_retries=1)
    until_text(installation, job, "step 20 ")
    for name in ("web", "tasks", "redis", "postgres"):
        old = installation.pid(name)
        os.kill(old, signal.SIGKILL)
        since = time.time()
        until(lambda name=name, old=old: installation.muster.pids.get(name) not in (None, old))
        until(lambda since=since: has_news(installation, job, since))
        matrix.add_all(f"kill -9 {name}", {"digits, running": time.time() - since})
    until_text(installation, job, "step 100 ")
    assert (installation.api.job(job)["phase"], installation.api.job(job)["attempt"]) == ("running", 1)
    pid, _ = installation.agents(job)[0]
    os.kill(pid, signal.SIGKILL)
    since = time.time()
    until(lambda: installation.api.job(job)["attempt"] == 2)
    matrix.add_all("kill -9 agent", {"digits, running": time.time() - since})
    ended = finished(installation, job)
    assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), texts(installation, job)[-20:]
    assert any("going on from" in text for text in texts(installation, job))


def has_news(installation, job: int, since: float) -> bool:
    page = installation.api.ask("GET", f"/jobs/{job}/logs", params={"tail": 1})
    return any(line["at_ms"] / 1000 > since for line in page["lines"])
