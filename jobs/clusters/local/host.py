"""What the local cluster asks of the machine: start an agent, is it alive, signal it, who carries a mark.

A process is its id, its start time and the boot it lives in, never an id alone: ids are used again.
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

from common import job_user
from common.process_environ import environs
from jobs.clusters.replica_file import child_env

from . import handed


@dataclass(frozen=True)
class Identity:
    """`started` in clock ticks since boot (proc(5), stat field 22)."""

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
    """The real machine. Tests of lost and late calls put another one in its place."""

    def __init__(
        self,
        agent: Path,
        python: str = sys.executable,
        more_env: Sequence[str] = (),
        home: Path | None = None,
    ):
        """`more_env` names what jobs inherit of our environment besides processes.INHERITED; `home` is for jobs of another user."""
        self.agent, self.python = agent, python
        self._more_env, self._home = more_env, home

    def spawn(self, folder: Path, verb: str = "--state") -> Identity:
        """Start the agent of one replica, detached: it outlives whoever started it. It runs as the owner of its folder.

        So what a job of before left unsent is sent by the user that can read it.
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
        # Somebody must take its exit code while we live; after us init does.
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
        """Ids of the processes that carry this mark and replica name in their environment."""
        wanted = [
            f"\0{name}={value}\0".encode() for name, value in (("MUSTER_MARK", mark), ("MUSTER_REPLICA", replica))
        ]
        return [pid for pid, env in environs() if all(one in env for one in wanted)]

    def kill_carriers(self, mark: str, replica: str) -> int:
        """How many there were."""
        found = self.carriers(mark, replica)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)


def started(pid: int) -> int | None:
    """Start time of a living process in ticks since boot; None when it is gone or a zombie."""
    try:
        # The second field is the name in brackets and may hold anything, so count from its end.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
