"""The process of the replica's command: start it, stop it, and report how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Callable

from . import linux
from .output.guardian import Guardian
from .state import StateFolder

# Loads data for a process that ends it itself (torch/utils/data/_utils/worker.py, `_set_thread_name`): were it stopped
# too, its parent would fail with "DataLoader worker is killed by signal" in place of saving.
_HELPER = "pt_data_worker"


@dataclass(frozen=True)
class Outcome:
    """How a replica ended. `exit_code` or `signal`, never both; neither when nothing was launched."""

    state: str
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""

    def code(self) -> int:
        """Return the agent's own exit code, by the shells' convention."""
        if self.state == "succeeded":
            return 0
        return self.exit_code or (128 + self.signal if self.signal else 1)


def failed(reason: str, *, exit_code: int | None = None) -> Outcome:
    return Outcome("failed", exit_code=exit_code, reason=reason)


class Launcher:
    """Leader of its own session. Dies with the agent's main thread."""

    def __init__(
        self, words: list[str], *, env: dict[str, str], folder: StateFolder, start: str, grace_seconds: float, rank: int
    ) -> None:
        """Start the process in the folder `start`; raises OSError when it cannot. `rank`: whose output it writes."""
        parent = os.getpid()
        self._marks = [f"{name}={env[name]}".encode() for name in ("MUSTER_MARK", "MUSTER_REPLICA", "MUSTER_REPORT")]
        self.guardian = Guardian(self._marks, folder=folder)
        outer, inner = os.pipe()  # of both streams, as with `2>&1`: only so their lines keep their order
        self.outputs = [outer]
        try:
            # First: what the process writes before its agent has noted its pipes is found even if the agent is killed.
            for pipe in self.outputs:
                os.set_blocking(pipe, False)
            self.guardian.keep_early(self.outputs, rank=rank)
            self._process = subprocess.Popen(
                words, env=env, cwd=start, stdin=subprocess.DEVNULL, stdout=inner, stderr=inner,
                start_new_session=True, preexec_fn=lambda: linux.die_with(parent),
            )  # fmt: skip
        except OSError:
            self.close_pipes()
            raise
        finally:
            os.close(inner)
        self._grace_seconds = grace_seconds
        self._status: int | None = None
        self.deadline: float | None = None  # monotonic; when the grace period ends
        self.stop_reason = ""
        self.was_asked = False  # whether it was running when it was asked to stop
        self._asked: set[int] = set()  # processes outside of the group that got SIGTERM

    @property
    def pid(self) -> int:
        return self._process.pid

    def close_pipes(self) -> None:
        """Close its stdout and stderr, whose `outputs` are taken over by nobody."""
        for pipe in self.outputs:
            os.close(pipe)
        self.outputs = []

    def stop(self, reason: str) -> None:
        """Send SIGTERM to its group. A second call ends the grace period."""
        if self.deadline is not None:
            self.deadline = time.monotonic()
            return
        self.stop_reason = reason
        self.deadline = time.monotonic() + self._grace_seconds
        if self._status is None:
            self.was_asked = True
            below = [pid for pid in linux.descendants(os.getpid()) if linux.group(pid) == self._process.pid]
            others = [pid for pid in below if linux.name(pid) != _HELPER]
            if len(others) < len(below):
                for pid in others:
                    _terminate(os.kill, pid)
            else:
                _terminate(os.killpg, self._process.pid)

    def stop_others(self, groups: set[int]) -> bool:
        """Send SIGTERM to what the command has started in other process groups than its own and these; return whether
        any of it is alive. A wrapper that used setsid has ended, and its trainer does not know of the stop."""
        others = [pid for pid in linux.descendants(os.getpid()) if pid != self.guardian.pid and linux.is_alive(pid)]
        others = [pid for pid in others if linux.group(pid) not in {self._process.pid, *groups}]
        for pid in others:
            if pid not in self._asked and linux.name(pid) != _HELPER:
                self._asked.add(pid)
                _terminate(os.kill, pid)
        return bool(others)

    def has_group(self) -> bool:
        """Return whether a process is left that got the launcher's SIGTERM."""
        try:
            os.killpg(self._process.pid, 0)
        except OSError:
            return False
        return True

    def left(self) -> list[int]:
        """Return the living processes that this replica started, whatever their parents are now."""
        found = {*linux.descendants(os.getpid()), *linux.marked(self._marks)} - {self.guardian.pid}
        return [pid for pid in found if linux.is_alive(pid)]

    def kill(self) -> None:
        """Send SIGKILL to everything that this replica started."""
        if self._status is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for _ in range(5):  # a killed process may just have forked
            left = self.left()
            if not left:
                return
            linux.kill(left)
            time.sleep(0.01)

    def reap(self) -> bool:
        """Reap all ended children, orphans included; return whether the launcher has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self._process.pid:
                self._status = status
                self._process.returncode = status  # or Popen would wait for a process that is no longer ours
        return self._status is not None

    def outcome(self) -> Outcome:
        status = self._status or 0
        if os.WIFSIGNALED(status):
            return Outcome("failed", signal=os.WTERMSIG(status), reason=self.stop_reason)
        exit_code = os.WEXITSTATUS(status)
        if exit_code == 0:
            return Outcome("succeeded", exit_code=0)
        return Outcome("failed", exit_code=exit_code, reason=self.stop_reason)


def _terminate(send: Callable[[int, int], None], pid: int) -> None:
    with contextlib.suppress(OSError):
        send(pid, signal.SIGTERM)
        send(pid, signal.SIGCONT)  # a stopped process would not receive it
