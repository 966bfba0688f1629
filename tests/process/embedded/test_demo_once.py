"""bin/demo --once, and what stopping or killing the demo does to a running job."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from muster import Client

from embedded.agents import living
from embedded.installation import Installation
from tests.process.embedded.world import ROOT, processes_naming

# Slow enough to be interrupted while it trains; it continues from its checkpoint.
SCRIPT = """
import os, sys, time, muster
place = os.path.join(muster.checkpoints(), "step")
step = int(open(place).read()) if os.path.exists(place) else 0
print("from", step, flush=True)
while not os.path.exists(os.path.join(muster.checkpoints(), "enough")):
    step += 1
    muster.report(step=step)
    open(place + ".new", "w").write(str(step))
    os.replace(place + ".new", place)
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("options", "replicas", "ranks"),
    [
        pytest.param([], 2, 4, marks=pytest.mark.sampled, id="torchrun"),
        pytest.param(["--framework", "ray"], 3, 0, marks=pytest.mark.sampled, id="ray"),
        pytest.param(["--framework", "monarch"], 3, 4, marks=pytest.mark.sampled, id="monarch"),
        pytest.param(["--light"], 4, 4, id="plain"),
    ],
)
def test_the_demo_once_runs_its_sample_job_and_ends_with_one_line_of_json(tmp_path, options, replicas, ranks):
    env = {**os.environ, "MUSTER_DATA_DIR": str(tmp_path / "data")}
    for name in ("DATABASE_URL", "REDIS_URL", "MUSTER_SECRET_KEY", "MUSTER_ALLOWED_HOSTS", "MUSTER_PUBLIC_URL"):
        env.pop(name, None)
    argv = [ROOT / "bin/demo", "--once", "--temporary", "--port", "0", *options]
    ended = subprocess.run(argv, env=env, text=True, capture_output=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    seconds = result.pop("seconds")
    assert result == {"job": 1, "phase": "succeeded", "attempts": 1, "replicas": replicas, "ranks": ranks}
    assert seconds > 0
    assert re.search(r"password  \S+", ended.stdout)
    assert processes_naming(str(tmp_path)) == []


@pytest.fixture
def script(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


def until(is_so, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


def started(muster: Installation, script) -> int:
    """Submit a job and wait until it has saved a few checkpoints. Return its id."""
    with Client(muster.url, muster.token) as client:
        job = client.submit("torchrun train.py", queue="default", directory=script, nodes=1, nproc_per_node=1).id
    until(lambda: step_of(muster, job) > 3)
    return job


def step_of(muster: Installation, job: int) -> int:
    found = list(muster.folder.glob(f"local/jobs/{job}-*/shared/**/step"))
    return int(found[0].read_text()) if found else 0


def phase_of(muster: Installation, job: int) -> str:
    with Client(muster.url, muster.token) as client:
        return client.job(job).phase


def finish(muster: Installation, job: int) -> None:
    (next(muster.folder.glob(f"local/jobs/{job}-*/shared/**/step")).parent / "enough").touch()
    until(lambda: phase_of(muster, job) == "succeeded")


@pytest.mark.sampled
def test_a_stop_suspends_running_jobs_and_the_next_start_resumes_them_from_a_checkpoint(tmp_path, script):
    first = Installation(tmp_path / "data")
    first.start()
    job = started(first, script)
    first.stop()
    reached = step_of(first, job)
    assert list(living(tmp_path / "data/local")) == []
    assert "Suspended 1 job; state kept" in (tmp_path / "data/supervisor.log").read_text()
    with Installation(tmp_path / "data") as second:  # without a terminal it prints how to resume, and does not ask
        assert phase_of(second, job) == "suspended"
        until(lambda: f"bin/muster resume {job}" in (tmp_path / "data/supervisor.log").read_text())
    with Installation(tmp_path / "data", options=("--no-job", "--resume"), is_temporary=True) as third:
        until(lambda: step_of(third, job) > reached)
        finish(third, job)
        with Client(third.url, third.token) as client:
            said = [line.text for line in client.logs(job) if line.text.startswith("from")]
        assert said[0] == "from 0"
        assert said[-1] == f"from {reached}"


@contextmanager
def stopped_wherever(words: str):
    """Stop each process whose command line contains `words` as soon as it appears, as a job of the same user could do."""
    is_over, found = threading.Event(), set()

    def look() -> None:
        while not is_over.wait(0.02):
            for entry in Path("/proc").iterdir():
                with suppress(OSError):
                    if entry.name.isdigit() and words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                        os.kill(int(entry.name), signal.SIGSTOP)
                        found.add(int(entry.name))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


@pytest.mark.long
def test_a_stop_ends_the_drain_that_still_sends_the_output_of_a_killed_agent(tmp_path):
    """Regression: tasks run until nearly the end of a stop, and started another drain after the first had been ended."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import json, os, time; print('line', flush=True); time.sleep(1);"
        "os.kill(json.load(open('../agent.json'))['pid'], 9); time.sleep(600)"
    )
    with Installation(tmp_path / "data", is_temporary=True) as muster:
        words = f"--drain {(tmp_path / 'data/local').resolve()}"
        with stopped_wherever(words) as drains:
            with Client(muster.url, muster.token) as client:
                client.submit("python train.py", queue="default", directory=folder, nodes=1, nproc_per_node=1)
            until(lambda: drains)
            muster.stop()
        assert processes_naming(words) == [] == processes_naming(str(tmp_path))


@pytest.mark.sampled  # tests/system/faults kills each of its processes
def test_killing_the_control_plane_leaves_ranks_running_and_the_next_start_finds_them(tmp_path, script):
    first = Installation(tmp_path / "data", is_temporary=True)
    first.start()
    job = started(first, script)
    agents = set(living(tmp_path / "data/local"))
    first.kill()
    reached = step_of(first, job)
    until(lambda: step_of(first, job) > reached + 10)
    assert set(living(tmp_path / "data/local")) == agents
    with Installation(tmp_path / "data", is_temporary=True) as second:
        until(lambda: f"Job {job} is still there from the last run." in (tmp_path / "data/supervisor.log").read_text())
        assert phase_of(second, job) == "running"
        assert set(living(tmp_path / "data/local")) == agents
        finish(second, job)
