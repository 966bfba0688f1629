"""Ray inside a replica: the head starts a cluster and then the driver, a worker joins it.

Where replicas share one address (a local cluster), each node gets a loopback address of its own, so that two jobs, or
two nodes of one, never share an address and a port.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Callable, Dict, List, Optional, Sequence

from ..output.followed import Followed
from ..state import Spec, StateFolder
from . import interpreters, loopback, ray_hook
from .base import Framework

HEAD = "head"  # the role; every other one is a worker
_MODULE = "ray.scripts.scripts"  # what the program `ray` runs (its entry point)
_TEMP = "ray-tmp"  # the file with the path of Ray's temporary folder
_NOISE = (
    b":job_id:", b":actor_name:", b":task_name:",  # for Ray's own log monitor (ray/_private/ray_constants.py)
    b"Failed to query Ray Train Controller actor state.",  # every second: that asks the dashboard, which is off
)  # fmt: skip


class Ray(Framework):
    def prepare(self, env: Dict[str, str], *, spec: Spec, folder: StateFolder, pyz: str) -> None:
        host, _, port = env.get("RAY_ADDRESS", "").rpartition(":")
        env["RAY_TMPDIR"] = _temporary_folder(folder)
        env.setdefault(ray_hook.VARIABLE, ray_hook.NAME)
        # Train's own `print` writes each line to its log and, as Ray replaces sys.stdout, to the process's output too.
        env.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")
        # Ray's 30 s may be too short on a busy machine; a node whose agents never come is given up a little later.
        env.setdefault("RAY_agent_register_timeout_ms", "120000")
        interpreters.prefer("ray", env, name="ray")
        # Workers look for modules in the driver's folder (ray/_private/worker.py), which has another path in each pod.
        start = spec.start(folder.code)
        env["PYTHONPATH"] = os.pathsep.join([start, env["PYTHONPATH"]]) if env.get("PYTHONPATH") else start
        if host == loopback.LOCAL:
            env["RAY_ADDRESS"] = f"{loopback.address(spec.mark, HEAD, 0)}:{port}"
            env["MUSTER_RAY_IP"] = loopback.address(spec.mark, spec.role, spec.index, incarnation=spec.incarnation)
            if env.get("CUDA_VISIBLE_DEVICES"):  # a GPU queue: Ray counts the cores itself
                env["MUSTER_RAY_CPUS"] = "0" if spec.role == HEAD else ""
        elif spec.role != HEAD:
            env["MUSTER_RAY_CPUS"] = ""  # a pod's own limits, which Ray reads

    def missing(self, find: Callable[[str], Optional[str]], *, env: Dict[str, str]) -> str:
        if find("ray") or interpreters.has_module(find("python3"), env, name="ray"):
            return ""
        return "Ray is not installed here: neither a program `ray` on the PATH nor a module of python3; install the package `ray` in the image or environment"

    def instead(self, command: Sequence[str], *, python: str) -> Optional[List[str]]:
        """Return Ray's program as a module: an image may have the package without its command."""
        return [python, "-m", _MODULE, *command[1:]] if command[0] == "ray" else None

    def wrapped(self, words: List[str], *, spec: Spec, folder: StateFolder, env: Dict[str, str], pyz: str) -> List[str]:
        act = "--ray-head" if spec.role == HEAD else "--ray-worker"
        return [sys.executable, "-I", "-S", "-E", pyz, act, *words]

    def followed(self, folder: StateFolder) -> Optional[Followed]:
        """Follow what tasks and actors print: Ray gives each of its worker processes files of its own."""
        top = _kept_path(folder)
        return Followed(lambda: _worker_files(top), is_noise=lambda line: line.startswith(_NOISE)) if top else None

    def clean(self, folder: StateFolder) -> None:
        if top := _kept_path(folder):
            shutil.rmtree(top, ignore_errors=True)


def _temporary_folder(folder: StateFolder) -> str:
    """Make a new one with a path that is short enough for the sockets in it (at most 107 bytes, unix(7))."""
    top = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
    path = tempfile.mkdtemp(prefix="ray-", dir=top)
    with open(folder.file(_TEMP), "w", encoding="utf-8") as file:
        file.write(path)
    return path


def _kept_path(folder: StateFolder) -> str:
    try:
        with open(folder.file(_TEMP), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _worker_files(top: str) -> List[str]:
    """Return the output of all worker processes that this node has started, in the order in which files are named."""
    found = []
    for session in _entries(top):
        if session.name.startswith("session_") and not session.is_symlink():
            logs = _entries(os.path.join(session.path, "logs"))
            found += [
                one.path for one in logs if one.name.startswith("worker-") and one.name.endswith((".out", ".err"))
            ]
    return sorted(found)


def _entries(path: str) -> "List[os.DirEntry[str]]":
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []
