"""One whole installation for these tests, started as a new user starts it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.rig import Rig, rig
from bench.verdicts import playing
from jobs.clusters.local.host import Host

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def scripted_folder(tmp_path_factory):
    """The folder of the cluster whose pods play a case of the corpus."""
    return tmp_path_factory.mktemp("scripted")


@pytest.fixture(scope="session")
def installation(tmp_path_factory, scripted_folder):
    environ = {"MUSTER_CLUSTERS": playing.clusters(scripted_folder)}
    with rig(tmp_path_factory.mktemp("installation"), environ=environ) as found:
        yield found


class Muster:
    """Helpers for these tests to use an installation."""

    def __init__(self, found: Rig, folder: Path):
        self.rig, self.client, self.folder = found, found.client, folder

    def submit(self, script: str, *, command: str | list[str] = "torchrun train.py", **asked):
        (self.folder / "train.py").write_text(script)
        asked = {"nodes": 1, "nproc_per_node": 1, **asked}
        words = command.split() if isinstance(command, str) else command
        return self.client.submit(words, queue="default", directory=self.folder, **asked)

    def until(self, job, what: Callable[[object], bool], seconds: float = 600):
        end = time.monotonic() + seconds
        while not what(now := self.client.job(job.id)):
            assert time.monotonic() < end, (now.phase, now.message, self.text(job)[-20:])
            time.sleep(0.2)
        return now

    def until_true(self, look: Callable[[], Any], seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < end
            time.sleep(0.2)
        return found

    def until_phase(self, job, *phases: str):
        return self.until(job, lambda now: now.phase in phases)

    def until_line(self, job, words: str) -> None:
        self.until(job, lambda now: any(words in line for line in self.text(job)))

    def text(self, job) -> list[str]:
        return [line.text for line in self.client.logs(job.id)]

    def command(self, *arguments: str) -> str:
        """The output of bin/muster."""
        run = subprocess.run(
            [ROOT / "bin/muster", *arguments], env=self.rig.env, capture_output=True, text=True, check=True
        )
        return run.stdout

    def _place(self, job) -> Path:
        (place,) = (self.rig.installation.folder / "local/jobs").glob(f"{job.id}-*")
        return place

    def shared(self, job) -> Path:
        return self._place(job) / "shared"

    def kill(self, job, replica: str) -> None:
        """Kill the agent of a replica of the first attempt, and so all of it."""
        os.kill(json.loads((self._place(job) / "1" / replica / "agent.json").read_text())["pid"], signal.SIGKILL)

    def left(self, job) -> list[int]:
        return self.processes(job)

    def processes(self, job, *, of: str = "*-*") -> list[int]:
        """Processes that still carry the mark of this job, or of one of its replicas, in their environment."""
        place = self._place(job)
        host = Host(ROOT / "agent/agent.pyz")
        replicas = [(path.parent.name, path.name) for path in place.glob(f"*/{of}/")]
        return [pid for attempt, name in replicas for pid in host.carriers(f"{place.name}-{attempt}", name)]


@pytest.fixture
def muster(installation, tmp_path):
    found = Muster(installation, tmp_path)
    yield found
    left = list(found.client.jobs(phase="active"))
    for job in left:
        found.client.cancel(job.id)
    for job in left:
        found.until(job, lambda now: now.is_finished)
