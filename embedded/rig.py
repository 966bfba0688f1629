"""The cluster of `bin/demo --cluster rig`: a private Kubernetes on this machine, started as a process beside this one.

It is a separate program (`rig/`), and nothing here imports it. All of it, with its pods, ends with that process; so an
installation's record of its jobs is useless to the next one.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import EmbeddedError
from .files import last_lines, open_log, private_folder, read_json
from .home import remove_home
from .local_home import remove_local_home
from .processes import spawn
from .programs import CHECKOUT, FRAMEWORKS, chosen
from .servers import stop_process
from .supervisor import Supervisor
from .terminal import say

PROGRAM = "rig"
NAME, QUEUE = "rig", "pods"
BACKEND = "jobs.clusters.kubernetes.KubernetesCluster"
STOPS = ((signal.SIGTERM, 90.0), (signal.SIGKILL, 5.0))
OF_ONE_RUN = ("files", "local", "logs", "secrets.json", "cli.json", "suspended.json", "rig.json")


class RigCluster:
    def __init__(self, data: Path, *, supervisor: Supervisor):
        self._data, self._supervisor = data, supervisor
        self._log, self._ready_file = data / "logs/rig.log", data / "rig.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._handle = -1

    def start(self) -> tuple[str, dict[str, Any]]:
        """Start it; return the address where its pods reach this machine, and its CLUSTERS entry less CONTROL_URL."""
        _forget(self._data)
        say("Starting a Kubernetes of its own (the first time it is built from source, a quarter of an hour) ...")
        self._process = self._spawn()
        self._handle = self._supervisor.watch(self._process, self._ended)
        while not self._ready_file.exists():
            self._supervisor.wait(lambda: False, seconds=0.2)
        ready = read_json(self._ready_file)
        return str(ready["host"]), {NAME: {"BACKEND": BACKEND, "OPTIONS": ready["options"]}}

    def stop(self) -> None:
        """Stop it. May be called for one that never started, or that ended by itself."""
        if self._process is not None:
            self._supervisor.unwatch(self._handle)
            self._handle = -1
            stop_process(self._process, signals=STOPS)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        private_folder(self._data / "logs")
        log = open_log(self._log)
        argv = [sys.executable, "-m", PROGRAM, "lend", str(self._ready_file)]
        try:
            return spawn(argv, log=log, env=dict(os.environ), folder=CHECKOUT)
        finally:
            os.close(log)

    def _ended(self) -> None:
        """Give up: a cluster that is gone does not come back with its jobs. Raises EmbeddedError."""
        self._supervisor.unwatch(self._handle)
        self._handle = -1
        why = last_lines(self._log, count=1)
        raise EmbeddedError(f"There is no cluster for jobs: {why}")


def sample_command(*, framework: str = "torchrun") -> list[str]:
    """Return the sample job's command, as a person would type it after bin/muster.

    PyTorch is not in the image; the claim `packages` has it.
    """
    if framework == "plain":
        options = ["--queue", QUEUE, "--nodes", "4", "--dir", "examples"]
    else:
        nproc = "1" if framework == "ray" else "2"
        options = ["--queue", QUEUE, "--nodes", "2", "--nproc", nproc, "--volume", "packages", "--dir", "examples"]
    return ["submit", *chosen(framework), *options, "--", *FRAMEWORKS[framework]]


def queue_command(*, user: str) -> list[str]:
    """Return the arguments of manage.py that make a queue on it."""
    return ["queue", QUEUE, "--team", QUEUE, "--slots", "8", "--cluster", NAME, "--member", user]


def _forget(data: Path) -> None:
    """Delete the state of the previous run, whose cluster is gone."""
    remove_local_home(data)
    remove_home(data)
    for name in OF_ONE_RUN:
        path = data / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
