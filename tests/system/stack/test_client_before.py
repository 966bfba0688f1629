"""The command line of the release before, as a program, against the server of today: tests/contract/client_before.zip."""

import json
import os
import subprocess
import sys

import pytest

from tests.contract.test_release_before import CLIENT
from tests.system.stack.conftest import ROOT

SCRIPT = """
import os, sys, time
print("rank", os.environ["RANK"], "is here", flush=True)
while not os.path.exists(os.path.join(os.environ["MUSTER_SHARED"], "go")):
    time.sleep(0.05)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def before(muster):
    """Run the old command line; returns what it printed, or reads it as JSON."""
    env = {**muster.rig.env, "PYTHONPATH": str(CLIENT)}

    def run(*words: str, code: int = 0):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "muster.cli", *words],
            env=env, cwd=muster.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return json.loads(done.stdout) if "json" in words else done.stdout

    return run


def test_it_is_really_the_old_one(before):
    env = {**os.environ, "PYTHONPATH": str(CLIENT)}
    where = "import muster, sys; sys.stdout.write(muster.__file__)"
    said = subprocess.run(
        [sys.executable, "-P", "-c", where], env=env, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith(str(CLIENT))
    assert "webhooks" not in before("--help"), "update what this test knows of the release before"


def test_it_submits_suspends_resumes_and_reads_a_job(muster, before):
    (muster.folder / "train.py").write_text(SCRIPT)
    words = ("--queue", "default", "--framework", "plain", "--nodes", "2", "--name", "of-an-old-client")
    job = before("submit", *words, "-o", "json", "--", "python3", "train.py", "3")
    number, job = str(job["id"]), muster.client.job(job["id"])
    muster.until(job, lambda now: now.phase == "running")
    assert {one["id"] for one in before("jobs", "-o", "json")} >= {job.id}
    assert [one["rank"] for one in before("ranks", number, "-o", "json")] == [0, 1]
    assert before("cat", number, "train.py") == SCRIPT

    before("suspend", number)
    muster.until(job, lambda now: now.phase == "suspended")
    before("resume", number)
    muster.until(job, lambda now: now.phase == "running" and now.attempt == 2)
    (muster.shared(job) / "go").touch()
    before("wait", number, code=3)
    assert "exited with code 3" in before("status", number)
    assert {"rank 0 is here", "rank 1 is here"} <= {line[-14:] for line in before("logs", number).splitlines()}
    assert before("events", number, "-o", "json")
