"""Run the programs as child processes: they die with us, and no other processes are ever touched."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)


def answers(host: str, port: int) -> bool:
    """Return whether something listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


class DidNotStart(Exception):
    """Carries the last lines of the program's log."""


class Process:
    """One program. `start` may be called again after `kill` or `stop`."""

    def __init__(self, name: str, words: list[str], *, log: Path, env: Mapping[str, str] | None = None):
        self.name, self.words, self.log, self.env = name, words, log, env or {}
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.env},
                preexec_fn=_die_with(os.getpid()),
            )  # fmt: skip

    def until(self, is_ready: Callable[[], bool], *, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not is_ready():
            if not self.is_running or time.monotonic() > end:
                raise DidNotStart(f"{self.name} did not start:\n{self._tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill without warning, as a crash would."""
        self._signal(signal.SIGKILL)
        if self._child is not None:
            self._child.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self, *, seconds: float = 5) -> None:
        if not self.is_running or self._child is None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: int) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def _die_with(parent: int) -> Callable[[], None]:
    """Return a function for the child to call before exec. No I/O and no locks there."""

    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
