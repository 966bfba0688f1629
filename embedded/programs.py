"""The four processes of an installation, and the environment they share."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from controlplane.operations import processes

from . import static_files
from .files import open_log
from .processes import spawn

CHECKOUT = Path(__file__).resolve().parents[1]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound by default
# Read once by the supervisor; no child, and so no rank, inherits them.
_OURS_ALONE = ("MUSTER_ADMIN_PASSWORD", "MUSTER_URL", "MUSTER_TOKEN", "MUSTER_CONFIG")


@dataclass(frozen=True)
class PythonProgram:
    name: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    stop_signals: tuple[tuple[int, float], ...]
    keeps: tuple[int, ...] = field(default=())  # descriptors that it inherits

    def spawn(self) -> "subprocess.Popen[bytes]":
        log = open_log(self.log)
        try:
            argv = [sys.executable, *self.arguments]
            return spawn(argv, log=log, env=dict(self.env), folder=CHECKOUT, pass_fds=self.keeps)
        finally:
            os.close(log)


def programs(env: Mapping[str, str], *, logs: Path, listener: socket.socket) -> list[PythonProgram]:
    """Return web, tasks, beat and watcher, in the order in which they are started."""
    soft = ((signal.SIGTERM, 6.0), (signal.SIGKILL, 5.0))
    # Celery: TERM finishes the current tasks, QUIT abandons them (they may run twice anyway).
    warm = ((signal.SIGTERM, 8.0), (signal.SIGQUIT, 3.0), (signal.SIGKILL, 5.0))

    def program(
        name: str, *arguments: str, stops: tuple[tuple[int, float], ...], keeps: tuple[int, ...] = ()
    ) -> PythonProgram:
        return PythonProgram(name, arguments, env, logs / f"{name}.log", stops, keeps)

    return [
        program("web", *processes.WEB, "--fd", str(listener.fileno()), stops=soft, keeps=(listener.fileno(),)),
        program("tasks", *processes.TASKS, stops=warm),
        program("beat", *processes.BEAT, stops=soft),
        program("watcher", *processes.WATCHER, stops=soft),
    ]


def environment(
    given: Mapping[str, str],
    *,
    data: Path,
    host: str,
    port: int,
    database_url: str,
    redis_url: str,
    secret_key: str,
    clusters: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the environment of every child. `clusters` are configured with the address at which they reach us."""
    kept = {name: value for name, value in given.items() if name not in _OURS_ALONE}
    return kept | {
        "PATH": os.pathsep.join([given.get("PATH", "/usr/bin:/bin"), str(Path(sys.executable).parent)]),
        "PYTHONPATH": _python_path(given.get("PYTHONPATH", "")),
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",  # glibc otherwise keeps an arena per thread; mallopt(3)
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "MUSTER_SECRET_KEY": secret_key,
        "MUSTER_DATA_DIR": str(data),
        "MUSTER_KEEP_FIRST_PASSWORD": "1",
        static_files.SETTING: given.get(static_files.SETTING) or str(static_files.folder()),
        "MUSTER_PUBLIC_URL": address(host, port=port),
        "MUSTER_ALLOWED_HOSTS": given.get("MUSTER_ALLOWED_HOSTS") or allowed_hosts(host),
        "MUSTER_CLUSTERS": json.dumps(
            _clusters(given.get("MUSTER_CLUSTERS", ""), data=data) | _reaching(clusters, url=address(host, port=port))
        ),
    }


def address(host: str, *, port: int) -> str:
    """Return the address at which this machine itself reaches the web process."""
    name = "127.0.0.1" if host in ANYWHERE else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def allowed_hosts(host: str) -> str:
    """Return the host names that a browser may use. When listening everywhere, this machine's names cannot be known."""
    own = "127.0.0.1,localhost,[::1]"
    if host in LOOPBACK:
        return own
    return "*" if host in ANYWHERE else f"{own},{f'[{host}]' if ':' in host else host},{socket.gethostname()}"


def _python_path(given: str) -> str:
    first = [str(CHECKOUT), str(CHECKOUT / "client")]
    return os.pathsep.join([*first, *(part for part in given.split(os.pathsep) if part and part not in first)])


def _clusters(given: str, *, data: Path) -> dict[str, object]:
    local = {"BACKEND": "jobs.clusters.local.LocalCluster", "OPTIONS": {"ROOT": str(data / "local")}}
    return {"local": local, **json.loads(given or "{}")}


def _reaching(clusters: Mapping[str, Any], *, url: str) -> dict[str, object]:
    return {name: {**one, "OPTIONS": {**one["OPTIONS"], "CONTROL_URL": url}} for name, one in clusters.items()}


FRAMEWORKS = {  # with a sample job
    "torchrun": ["torchrun", "ddp_digits.py"],
    "plain": ["python3", "plain_line.py"],
    "ray": ["python3", "ray_tasks.py"],
    "monarch": ["python3", "monarch_digits.py"],
}
LIGHT = "plain"  # needs nothing but Python


def sample_command(slots: int = 4, *, framework: str = "torchrun") -> list[str]:
    """Return the first job's command, as a person would type it after bin/muster.

    2 x 2 processes; one in each replica where the queue has fewer slots, or each command is one rank.
    """
    nodes, nproc = (2, 2) if slots >= 4 else (max(slots, 1), 1)
    if framework == "plain":
        nodes, nproc = min(max(slots, 1), 4), 1
    if framework == "ray":
        nodes, nproc = min(max(slots, 1), 2), 1
    options = ["--queue", "default", "--nodes", str(nodes), "--nproc", str(nproc), "--dir", "examples"]
    return ["submit", *chosen(framework), *options, "--", *FRAMEWORKS[framework]]


def chosen(framework: str) -> list[str]:
    """Return the option that names a framework; torchrun is the default and needs none."""
    return [] if framework == "torchrun" else ["--framework", framework]
