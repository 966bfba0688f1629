"""bin/demo --once, and what stopping or killing the demo does to a running job."""

import json
import os
import re
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from muster import Client

from embedded.agents import living
from embedded.installation import Installation
from tests.process.embedded.jobs import finish, phase_of, started, step_of
from tests.process.embedded.world import ROOT, environ, processes_naming
from tests.support.patience import until

GUARDS = ("bin", "embedded", "docs/demo.md", "requirements/demo.lock")
SOAK = pytest.mark.soak(guards=(*GUARDS, "agent/frameworks", "jobs/frameworks"))


@pytest.mark.parametrize(
    ("options", "replicas", "ranks"),
    [
        pytest.param([], 2, 4, marks=pytest.mark.full, id="torchrun"),
        pytest.param(["--framework", "ray"], 3, 0, marks=SOAK, id="ray"),
        pytest.param(["--framework", "monarch"], 3, 4, marks=SOAK, id="monarch"),
        pytest.param(["--light"], 4, 4, marks=pytest.mark.ci(guards=GUARDS), id="plain"),
    ],
)
def test_the_demo_once_runs_its_sample_job_and_ends_with_one_line_of_json(tmp_path, options, replicas, ranks):
    argv = [ROOT / "bin/demo", "--once", "--temporary", "--port", "0", *options]
    ended = subprocess.run(
        argv, env=environ(tmp_path / "data"), text=True, capture_output=True, timeout=900, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout.splitlines()[-1])
    seconds = result.pop("seconds")
    assert result == {"job": 1, "phase": "succeeded", "attempts": 1, "replicas": replicas, "ranks": ranks}
    assert seconds > 0
    assert re.search(r"password  \S+", ended.stdout)
    assert processes_naming(str(tmp_path)) == []


@pytest.mark.full  # the terminal's Ctrl-C does the same in test_two_starts.py
def test_a_stop_suspends_running_jobs_and_the_next_start_resumes_them_from_a_checkpoint(tmp_path):
    first = Installation(tmp_path / "data")
    first.start()
    job = started(first, tmp_path)
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


@pytest.mark.full
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


@pytest.mark.full  # tests/system/faults kills each of its processes
def test_killing_the_control_plane_leaves_ranks_running_and_the_next_start_finds_them(tmp_path):
    first = Installation(tmp_path / "data", is_temporary=True)
    first.start()
    job = started(first, tmp_path)
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
