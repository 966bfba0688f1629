"""A whole installation on free ports in a folder, for browser tests and benches:

    with Installation(Path("...")) as muster:
        muster.url, muster.user, muster.password, muster.token, muster.env

It is bin/demo's own supervisor in a separate process, so tests and measurements cover what users run.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import EmbeddedError, instance
from .files import last_lines, open_log, private_folder, read_json
from .processes import Identity, spawn
from .programs import CHECKOUT

START_SECONDS = 120.0
# The caller's own tests and demo set these; an installation begins without them.
_NOT_INHERITED = (
    "DATABASE_URL",
    "REDIS_URL",
    "MUSTER_DATA_DIR",
    "MUSTER_SECRET_KEY",
    "MUSTER_ALLOWED_HOSTS",
    "MUSTER_CLUSTERS",
)


class Installation:
    """A whole installation; `environ` is added to the processes' environment.

    `is_temporary`: no fsync, and `stop` deletes the database. `checkout` is where the running code is: another release
    of it, in tests of an upgrade.
    """

    user = "admin"

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        environ: Mapping[str, str] | None = None,
        is_temporary: bool = False,
        options: Sequence[str] = ("--no-job",),
        checkout: Path = CHECKOUT,
    ):
        self.checkout = checkout
        self.folder = folder.absolute()
        self.password = secrets.token_urlsafe(12)  # of the first start in this folder
        self._arguments = [
            "demo",
            "--host",
            host,
            "--port",
            str(port),
            *(["--temporary"] if is_temporary else []),
            *options,
        ]
        self._environ = dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def note(self) -> dict[str, Any]:
        """Return the supervisor's note about itself: supervisor, state, url, env."""
        return instance.running(self.folder) or {}

    @property
    def url(self) -> str:
        return str(self.note["url"])

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of its processes; enough for `manage.py` and for bin/muster."""
        return dict(self.note["env"])

    @property
    def token(self) -> str:
        """Return the administrator's token, as bin/muster uses it."""
        return str(read_json(self.folder / "cli.json")["servers"]["demo"]["token"])

    @property
    def pids(self) -> dict[str, int]:
        """Return the pids of the supervisor and its children. Postgres and ranks have children of their own."""
        known = {name: Identity(**who).pid for name, who in (read_json(self.folder / "running.json") or {}).items()}
        return {"supervisor": int(self.note["supervisor"]["pid"]), **known}

    def start(self) -> None:
        """Start, and return when the web process answers. Raises EmbeddedError."""
        private_folder(self.folder)
        log = open_log(self.folder / "supervisor.log")
        try:
            argv = [sys.executable, "-m", "embedded", *self._arguments]
            self._process = spawn(argv, log=log, env=self._environment(), folder=self.checkout)
        finally:
            os.close(log)
        self._await_ready(self._process)

    def stop(self, *, seconds: float = 90.0) -> None:
        """Stop as Ctrl-C does: jobs suspended, all processes ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the supervisor alone, which agents and ranks must survive."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _await_ready(self, process: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + START_SECONDS
        while self.note.get("state") != "ready":
            if process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise EmbeddedError(
                    f"The installation did not start:\n{last_lines(self.folder / 'supervisor.log', count=20)}"
                )
            time.sleep(0.05)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        path = os.pathsep.join([str(self.checkout), str(self.checkout / "client"), kept.get("PYTHONPATH", "")])
        own = {
            "MUSTER_DATA_DIR": str(self.folder),
            "MUSTER_ADMIN_PASSWORD": self.password,
            "PYTHONPATH": path.rstrip(os.pathsep),
        }
        return {**kept, **own, **self._environ}
