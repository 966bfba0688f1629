"""bin/demo: its messages in order, and the job it submits and follows."""

import argparse
import json
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import Any

from . import EmbeddedError, rig
from .fetch import fetch
from .files import read_json
from .instance import Instance, starting
from .launch import Launch
from .programs import ANYWHERE, LIGHT, LOOPBACK, sample_command
from .supervisor import StopAsked
from .terminal import complain, is_terminal, say

NO_RESULT = {"job": None, "phase": None, "attempts": 0, "replicas": 0, "ranks": 0, "seconds": 0.0}
TRUST = (
    "All teams of this machine are one trust domain: anyone who may submit a job here can read and end every other local\n"
    "job. Kubernetes separates teams; docs/security.md says what a local job can reach."
)
INTERRUPTED = 130  # 128 + SIGINT, the shells' convention


class Demo:
    def __init__(self, data: Path, *, options: argparse.Namespace):
        self.options = options
        self.instance = Instance(data)
        self.launch = Launch(
            self.instance,
            host=options.host,
            port=options.port,
            is_temporary=options.temporary or options.cluster == rig.NAME,
        )
        self.rig = rig.RigCluster(data, supervisor=self.launch.supervisor) if options.cluster == rig.NAME else None
        self.result: dict[str, Any] = dict(NO_RESULT)

    def run(self) -> int:
        if not self.instance.claim():
            return self._already()
        self.launch.supervisor.listen()
        try:
            code = self._stay()
        except StopAsked:
            say("\nStopping ...")
            code = INTERRUPTED if self.options.once else 0
        except EmbeddedError as error:
            complain(error)
            code = 1
        finally:
            self.launch.stop()
            if self.rig:
                self.rig.stop()
        say("Stopped; no process is left.")
        if self.options.once:
            say(json.dumps(self.result))
        return code

    def _stay(self) -> int:
        began = time.monotonic()
        if self.rig:
            self.launch.host, self.launch.clusters = self.rig.start()
            began = time.monotonic()
        say("Starting Muster ...")
        prepared = self.launch.start()
        if self.rig:
            self._add_queue(user=prepared["user"])
        self.introduce(prepared, seconds=time.monotonic() - began)
        job = self._choose(prepared) if self.has_packages() else None
        if job is not None:
            self._follow(job)
        if self.options.once:
            return 0 if self.result["phase"] == "succeeded" else 1
        self._farewell()
        self.launch.supervisor.wait(lambda: False)
        return 0

    def has_packages(self) -> bool:
        """Fetch what the sample job needs and is not installed yet. Without it Muster itself stays up."""
        if not self.options.fetch_pytorch or self.options.framework == LIGHT:
            return True
        try:
            fetch(self.launch.supervisor, log=self.launch.logs / "install.log", say=say)
        except EmbeddedError as error:
            complain(error)
            complain("There is no sample job; bin/demo --light has one that needs no PyTorch.")
            return False
        return True

    def _already(self) -> int:
        """Exit 0, since what was requested is running; but --once requires a job, which is then not run."""
        note = starting(self.instance.data) or {}
        say(
            f"Muster is already running from {self.instance.data}: {note.get('url', 'it is just starting or stopping')}"
        )
        say("bin/demo --stop stops it.")
        return 1 if self.options.once else 0

    def introduce(self, prepared: dict[str, Any], *, seconds: float) -> None:
        """Print the address, the account, and who else could reach what."""
        say(f"Muster is up after {seconds:.1f} s.\n")
        say(f"  address   {self.launch.url}")
        say(f"  user      {prepared['user']}")
        if prepared["password"]:
            say(f"  password  {prepared['password']}   (shown only once; bin/demo --reset-password makes a new one)\n")
        else:
            say("  password  as before; bin/demo --reset-password makes a new one\n")
        if self.launch.job_user:
            say(
                f"Local jobs run as user {self.launch.job_user.uid}, who cannot read Muster's secrets (MUSTER_JOB_USER).\n"
            )
        if self.launch.host not in LOOPBACK and not self.rig:
            say(
                f"Listening on {self.options.host}{_also(self.options.host, url=self.launch.url)}. This is plain HTTP: passwords and tokens"
            )
            say("can be read in transit. Use it in a network you trust, or put a TLS proxy in front of it.")
            say(TRUST + "\n")

    def _choose(self, prepared: dict[str, Any]) -> int | None:
        """Return the job to follow: a job that continues, before a new one."""
        if prepared["suspended"] and (resumed := self._offer(prepared["suspended"])):
            return resumed[-1]
        if prepared["active"] and not self.options.once:
            say(f"Job {prepared['active'][0]} is still there from the last run.")
            return int(prepared["active"][0])
        return None if self.options.no_job else self._submit(prepared["slots"])

    def _offer(self, jobs: list[int]) -> list[int]:
        names = ", ".join(str(job) for job in jobs)
        if not self.options.resume and (self.options.once or not is_terminal()):
            say(f"Suspended by the last stop: job {names}. To resume: bin/muster resume {jobs[-1]}")
            return []
        if self.options.resume or self._is_agreed(f"The last stop suspended job {names}. Resume? [Y/n] "):
            return list(self.launch.step("resume")["resumed"])
        self.launch.step("forget")
        say(f"They stay suspended; later: bin/muster resume {jobs[-1]}")
        return []

    def _is_agreed(self, question: str) -> bool:
        print(question, end="", flush=True)
        return self.launch.supervisor.ask(sys.stdin.fileno()).lower() in ("", "y", "yes")

    def _submit(self, slots: int) -> int | None:
        framework = self.options.framework
        command = rig.sample_command(framework=framework) if self.rig else sample_command(slots, framework=framework)
        say(f"$ bin/muster {shlex.join(command)}")
        code, out = self.launch.python("-m", "muster.cli", command[0], "--output", "json", *command[1:])
        if code:
            say("The sample job was not submitted; the line above says why.")
            return None
        return int(json.loads(out)["id"])

    def _follow(self, job: int) -> None:
        say(f"Job {job}: {self.launch.url}/jobs/{job}")
        _, out = self.launch.python("-m", "embedded.follow", str(job))
        if out.strip():
            self.result = json.loads(out.splitlines()[-1])
            ranks = f" {self.result['ranks']} ranks succeeded," if self.result["ranks"] else ""
            say(f"Job {job} {self.result['phase']}:{ranks} {self.result['seconds']:.0f} s.")

    def _add_queue(self, *, user: str) -> None:
        code, _ = self.launch.python("manage.py", *rig.queue_command(user=user), log=self.launch.logs / "steps.log")
        if code:
            raise EmbeddedError(f"no queue was created; {self.launch.logs / 'steps.log'} says why")

    def _client(self) -> str:
        return f"MUSTER_CONFIG={self.instance.data / 'cli.json'} bin/muster" if self.rig else "bin/muster"

    def _options(self) -> str:
        queue = rig.QUEUE if self.rig else "default"
        if self.options.framework == "plain":
            return f"--queue {queue} --framework plain --nodes 2 --dir FOLDER --follow -- python3 YOUR_SCRIPT.py"
        volume = " --volume packages" if self.rig else ""
        if self.options.framework in ("monarch", "ray"):
            framework = self.options.framework
            return f"--queue {queue}{volume} --framework {framework} --nodes 2 --dir FOLDER --follow -- python3 YOUR_SCRIPT.py"
        return f"--queue {queue}{volume} --nodes 2 --nproc 2 --dir FOLDER --follow -- torchrun YOUR_SCRIPT.py"

    def _farewell(self) -> None:
        say("\nNow your own script:")
        say(f"  {self._client()} submit {self._options()}\n")
        say(f"  data  {self.instance.data}{_elsewhere(self.instance.data)}")
        say(f"  logs  {self.launch.logs}")
        say("Ctrl-C suspends running jobs and stops everything; bin/demo --stop does the same from another terminal.")


def _also(host: str, *, url: str) -> str:
    """Return the address that another machine would use, if listening on all addresses."""
    if host not in ANYWHERE:
        return ""
    family, far = (
        (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    )  # documentation addresses, RFC 5737
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((far, 9))  # selects the route; nothing is sent
            return f": http://{probe.getsockname()[0]}:{url.rpartition(':')[2]}"
        except OSError:
            return ""


def _elsewhere(data: Path) -> str:
    note = read_json(data / "home.json")
    return f"  (database: {note['path']}, because you are root)" if note else ""
