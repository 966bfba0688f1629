"""Start and end all processes of one installation, in order, under one supervisor."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.environment import BadSetting, unfolded
from common.machine.job_user import JobUser

from . import EmbeddedError
from .agents import end_agents
from .files import bound_log, last_lines, open_log, private_folder, write_json
from .health import Probe
from .instance import Instance
from .local_home import find_local_home, remove_local_home
from .ports import listen
from .processes import spawn
from .programs import CHECKOUT, environment, programs
from .servers import Servers, note_running, secret
from .supervisor import StopAsked, Supervisor
from .terminal import say

WEB_SECONDS = 60.0
WEB_TRIES = 3  # deaths, or error responses
# Clients before servers: no process finds its server closed during the shutdown.
ENDING = (("web", "beat", "watcher"), ("tasks",), ("redis",), ("postgres",))


class Launch:
    def __init__(
        self,
        instance: Instance,
        *,
        host: str,
        port: int,
        given: Mapping[str, str] = os.environ,
        is_temporary: bool = False,
    ):
        self.instance, self.data = instance, instance.data
        given = _unfolded(given)
        self.host, self.port, self.given = host, port, given
        self.logs = self.data / "logs"
        self.supervisor = Supervisor(
            say, on_change=lambda pids: note_running(self.data, pids=pids), chore=self._bound_logs
        )
        database_url, redis_url = given.get("DATABASE_URL", ""), given.get("REDIS_URL", "")
        self.servers = Servers(self.data, database_url=database_url, redis_url=redis_url, is_temporary=is_temporary)
        self.env: dict[str, str] = {}
        self.job_user: JobUser | None = None
        self.clusters: Mapping[str, Any] = {}  # that are configured with our address
        self._is_prepared = False

    @property
    def url(self) -> str:
        return self.env["MUSTER_PUBLIC_URL"]

    def start(self) -> dict[str, Any]:
        """Start everything and wait until it answers; return the result of `steps.prepare`. Raises EmbeddedError."""
        private_folder(self.data)
        setting = self.given.get("MUSTER_JOB_USER", "")
        self.job_user = find_local_home(self.data, setting=setting, is_temporary=self.servers.is_temporary)
        self.open_database()
        first_password = {name: self.given[name] for name in ("MUSTER_ADMIN_PASSWORD",) if name in self.given}
        prepared = self.step("prepare", self.url, **first_password)
        self._is_prepared = True
        self._build_agent()
        # Agents read it again for each attempt to connect: those that outlived the last control plane find this one.
        write_json(self.data / "local/control.json", value={"url": self.url}, mode=0o644)
        for program in programs(self.env, logs=self.logs, listener=self.listener):
            self.supervisor.start(program)
        self._await_web()
        self.instance.record(state="ready")
        return prepared

    def step(self, verb: str, *arguments: str, **env: str) -> dict[str, Any]:
        """Run one of steps.py. Raises EmbeddedError with the end of its output."""
        code, out = self.python("-m", "embedded.steps", verb, *arguments, log=self.logs / "steps.log", **env)
        if code:
            raise EmbeddedError(
                f"{verb} failed; {self.logs / 'steps.log'} ends with:\n{last_lines(self.logs / 'steps.log')}"
            )
        return dict(json.loads(out.splitlines()[-1]))

    def python(self, *arguments: str, log: Path | None = None, **env: str) -> tuple[int, str]:
        """Run our interpreter to its end; return exit code and output.

        Its stderr goes to the log, or to the terminal.
        """

        def start(out: int) -> "subprocess.Popen[bytes]":
            errors = open_log(log) if log else None
            try:
                return spawn(
                    [sys.executable, *arguments], stdout=out, stderr=errors, env=self.env | env, folder=CHECKOUT
                )
            finally:
                if errors is not None:
                    os.close(errors)

        ended = self.supervisor.run(start)
        return ended.code, ended.out

    def stop(self) -> None:
        """Suspend what runs here, then end every process. A second signal cuts the waiting short."""
        self.instance.record(state="stopping")
        if self._is_prepared:
            self._suspend()
        for names in ENDING:
            self.supervisor.end(*names)
        if self._is_prepared:
            end_agents(self.data / "local")  # tasks started these until it ended, to send what a killed agent had left
        self.servers.stop()
        if self.servers.is_temporary:
            remove_local_home(self.data)
        self.instance.forget()

    def open_database(self) -> None:
        """Start the servers and set the environment: enough for a step."""
        private_folder(self.data)
        private_folder(self.logs)
        self._start_servers()
        self._listen()

    def _start_servers(self) -> None:
        self.servers.start()
        for server, process in self.servers.hand_over():
            self.supervisor.adopt(server, process=process)

    def _listen(self) -> None:
        self.listener = listen(self.host, port=self.port)
        port = self.listener.getsockname()[1]
        if self.port and port != self.port:
            say(f"Port {self.port} is in use; using {port}.")
        self.env = environment(
            self.given,
            data=self.data,
            host=self.host,
            port=port,
            database_url=self.servers.database_url,
            redis_url=self.servers.redis_url,
            secret_key=self.given.get("MUSTER_SECRET_KEY") or secret(self.data, name="secret_key"),
            clusters=self.clusters,
        )
        if self.job_user:
            self.env["MUSTER_JOB_USER"] = str(self.job_user.uid)
        self.env["MUSTER_CONFIG"] = str(self.data / "cli.json")
        self.instance.record(state="starting", url=self.url, env=self.env)

    def _build_agent(self) -> None:
        """Build agent.pyz at every start.

        It takes a tenth of a second, the same sources give the same bytes, and a stale one would cause puzzling errors.
        """
        code, _ = self.python("-m", "agent.build", log=self.logs / "steps.log")
        if code:
            raise EmbeddedError(f"agent.pyz could not be built; {self.logs / 'steps.log'} says why.")

    def _await_web(self) -> None:
        probe, log = Probe(self.listener.getsockname()[:2], host=self.url.partition("//")[2]), self.logs / "web.log"
        for _ in range(int(WEB_SECONDS / 0.05)):
            if probe.is_answered():
                return
            if max(self.supervisor.children["web"].deaths, probe.refusals) >= WEB_TRIES:
                break
            self.supervisor.wait(lambda: False, seconds=0.05)
        raise EmbeddedError(f"The web process does not answer; {log} ends with:\n{last_lines(log, count=12)}")

    def _bound_logs(self) -> None:
        """Bound logs while they are written: a client that keeps being refused would fill the disk with them."""
        for log in self.logs.glob("*.log"):
            bound_log(log)

    def _suspend(self) -> None:
        try:
            done = self.step("suspend")
            count, left = len(done["suspended"]), len(done["left"])
        except (StopAsked, EmbeddedError) as error:
            say(str(error) or "Not waiting any longer.")
            count, left = 0, 1
        if left or not count:
            end_agents(self.data / "local")
        if count:
            jobs = "1 job" if count == 1 else f"{count} jobs"
            say(f"Suspended {jobs}; state kept, checkpoints too. The next bin/demo offers to resume.")


def _unfolded(given: Mapping[str, str]) -> dict[str, str]:
    """Return `given` with its secret files' content, so that children get one environment and read no such file."""
    try:
        return unfolded(given)
    except BadSetting as error:
        raise EmbeddedError(f"{error}.") from error
