"""The local cluster's access to the machine: start an agent, check and signal it, find processes by their mark.

A process is identified by its id, its start time and the boot, never by the id alone: ids are reused.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.machine import job_user
from common.machine.process_environ import environs
from jobs.clusters.replica_file import child_env

from . import handed


@dataclass(frozen=True)
class Identity:
    """A process. `started` in clock ticks since boot (proc(5), stat field 22)."""

    pid: int
    started: int
    boot: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Identity":
        data = json.loads(text)
        return cls(int(data["pid"]), int(data["started"]), str(data["boot"]))


class Host:
    """The real machine. Tests of lost and late calls replace it."""

    def __init__(
        self,
        agent: Path,
        python: str = sys.executable,
        more_env: Sequence[str] = (),
        *,
        home: Path | None = None,
    ):
        """`more_env`: variables that jobs inherit besides replica_file.INHERITED; `home`: for jobs of another user."""
        self.agent, self.python = agent, python
        self._more_env, self._home = more_env, home

    def spawn(self, folder: Path, verb: str = "--state") -> Identity:
        """Start the agent of one replica, detached: it outlives this process. It runs as the owner of its folder.

        So what an earlier job left unsent is sent by the user that can read it.
        """
        about = folder.stat(follow_symlinks=False)
        is_other = about.st_uid != os.geteuid()
        who: dict[str, Any] = {"user": about.st_uid, "group": about.st_gid, "extra_groups": []} if is_other else {}
        with os.fdopen(handed.open_to_append(folder / "agent.log"), "ab") as log:
            process = subprocess.Popen(
                [self.python, str(self.agent), verb, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=child_env(os.environ, self._more_env) | (self._others_env(about.st_uid) if is_other else {}),
                start_new_session=True,
                **who,
            )
        # While this process is running it must reap the agent; after that, init does.
        threading.Thread(target=process.wait, daemon=True, name=f"reap-{process.pid}").start()
        return Identity(process.pid, started(process.pid) or 0, boot_id())

    def _others_env(self, uid: int) -> dict[str, str]:
        name = job_user.name_of(uid)
        home = {"HOME": str(self._home)} if self._home else {}
        return {**home, "USER": name, "LOGNAME": name, "SHELL": "/bin/sh"}

    def is_alive(self, one: Identity) -> bool:
        return one.boot == boot_id() and started(one.pid) == one.started

    def signal(self, one: Identity, number: int) -> None:
        if self.is_alive(one):
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, number)

    def carriers(self, mark: str, replica: str) -> list[int]:
        """Return the ids of the processes with this mark and replica name in their environment."""
        wanted = [
            f"\0{name}={value}\0".encode() for name, value in (("MUSTER_MARK", mark), ("MUSTER_REPLICA", replica))
        ]
        return [pid for pid, env in environs() if all(one in env for one in wanted)]

    def kill_carriers(self, mark: str, replica: str) -> int:
        """Kill the carriers of a mark. Return how many there were."""
        found = self.carriers(mark, replica)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)


def started(pid: int) -> int | None:
    """Return a living process's start time in ticks since boot; None when it is gone or a zombie."""
    try:
        # The second field is the name in brackets and may hold anything, so count from its end.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
