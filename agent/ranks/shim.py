"""Runs between torchrun and one rank: gives the rank's output to the agent and reports how it ended.

torchrun starts it as PYTHON_EXEC (torch/distributed/run.py), so its arguments are the interpreter's.

How torchrun stops a rank, read in torch 2.15, elastic/multiprocessing/subprocess_handler: the child is started with
start_new_session=True and signalled with os.killpg. Shim and rank share that group, so the rank gets every signal by
itself and the shim must forward nothing. Older versions (before 2.0) signal the child's pid only and start no session;
then the shim is no group leader, and forwards.

If the agent cannot be reached the shim becomes the interpreter: it must never bring training down.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

from .. import linux

SOCKET_ENV, NO_PYTHON_ENV = "MUSTER_REPORT", "MUSTER_NO_PYTHON"
CONNECT_SECONDS = 5.0
FLAGS = ("-B", "-O", "-OO", "-E", "-s", "-I", "-P", "-b")
VALUED_FLAGS = ("-X", "-W")
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Python ignores these two; a program that it starts expects the defaults (as subprocess's restore_signals).
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


def main(arguments: list[str]) -> int:
    launcher = os.getppid()
    linux.die_with(launcher)
    is_program = bool(os.environ.pop(NO_PYTHON_ENV, ""))
    # torchrun puts -u before the script, which a program would take for its own.
    command = _program(arguments[1:]) if is_program else [*_interpreter(launcher), *arguments]
    os.environ.pop("PYTHON_EXEC", None)  # a torchrun inside the rank must not use the shim
    try:
        agent = connect(os.environ[SOCKET_ENV])
        read_end, out = os.pipe()
        introduce(agent, launcher=launcher, read_ends=[read_end])
    except (KeyError, OSError, ValueError):
        _become(command)
    os.close(read_end)
    return Shim(agent, launcher=launcher).watch(command, out=out)


class Shim:
    """Waits for three things: the rank's end, a signal from the launcher, the agent's death."""

    def __init__(self, agent: socket.socket, *, launcher: int) -> None:
        self._agent: socket.socket | None = agent
        self._agent_pid = struct.unpack("3i", agent.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self._wants_forwarding = os.getpgrp() != os.getpid()
        self._wake_read, self._wake_write = os.pipe()
        self._pid = 0

    def watch(self, command: list[str], *, out: int) -> int:
        self._start(command, out=out)
        self._tell({"pid": self._pid, "at": time.time()})
        while True:
            sources: list[Any] = [self._wake_read] + ([self._agent] if self._agent else [])
            ready, _, _ = select.select(sources, [], [])
            at = time.time()  # before anything else: the order of the ranks' ends is derived from this
            if self._wake_read in ready:
                status = self._signalled(os.read(self._wake_read, 64))
                if status is not None:
                    return self._end(status, at=at)
            elif self._agent in ready:
                self._lost_agent()

    def _start(self, command: list[str], *, out: int) -> None:
        # Block signals until both processes after the fork have installed their handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, signal.SIGCHLD))
        was = {number: signal.getsignal(number) for number in STOPS}
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _become_rank(command, out=out, parent=parent, was=was, mask=before)
        os.close(out)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write)
        for number in (*STOPS, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _signalled(self, numbers: bytes) -> int | None:
        """Return the rank's wait status once it ended. The launcher's stop is reported first: it explains the end."""
        for number in numbers:
            if number in STOPS:
                self._tell({"signalled": number, "at": time.time()})
                if self._wants_forwarding:
                    with contextlib.suppress(OSError):
                        os.kill(self._pid, number)
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        return status if pid else None

    def _end(self, status: int, *, at: float) -> int:
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self._tell({"end": {"exit_code": exit_code, "signal": ended_by}, "at": at})
        if ended_by is not None:
            _die_of(ended_by)
        return exit_code or 0

    def _lost_agent(self) -> None:
        """Handle a closed connection: the agent never closes it while it is alive.

        The agent's death ends the rank too, since nothing would observe it any longer.
        """
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.close()
        give_up = time.monotonic() + 1.0
        while linux.is_alive(self._agent_pid) and time.monotonic() < give_up:
            time.sleep(0.05)
        if not linux.is_alive(self._agent_pid):
            linux.kill([self._pid])

    def _tell(self, message: dict[str, Any]) -> None:
        if self._agent is not None:
            with contextlib.suppress(OSError):
                self._agent.sendall(json.dumps(message).encode() + b"\n")


def _program(words: list[str]) -> list[str]:
    """Return a command whose first word is a path, looked up as a shell would."""
    return [_on_path(words[0]) or words[0], *words[1:]]


def _on_path(word: str) -> str:
    """Return the path of a program; empty if there is none of this name."""
    folders = [""] if "/" in word else os.environ.get("PATH", os.defpath).split(os.pathsep)
    return next((path for path in (os.path.join(one, word) for one in folders) if os.access(path, os.X_OK)), "")


def _interpreter(launcher: int) -> list[str]:
    """Return the interpreter that torchrun itself runs under, and the flags that it was started with.

    Its first word, not /proc/PID/exe: that would lose a virtual environment.
    """
    try:
        with open(f"/proc/{launcher}/cmdline", "rb") as file:
            word, *rest = [os.fsdecode(one) for one in file.read().split(b"\0")]
    except OSError:
        return [sys.executable]
    program = _on_path(word)
    return [program, *_flags(rest)] if "py" in os.path.basename(program) else [sys.executable]


def _flags(words: list[str]) -> list[str]:
    """Return Python's own flags at the beginning of these words: `-O -X dev`."""
    at = 0
    while at < len(words) and (words[at] in FLAGS or words[at][:2] in VALUED_FLAGS):
        at += 2 if words[at] in VALUED_FLAGS else 1
    return words[:at]


def connect(address: str) -> socket.socket:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    agent.settimeout(CONNECT_SECONDS)
    agent.connect("\0" + address[1:] if address.startswith("@") else address)
    return agent


def introduce(
    agent: socket.socket, *, launcher: int, read_ends: list[int], first_rank: int = 0, is_quiet: bool = False
) -> None:
    """Send the hello, before a fork: if this fails there is only one process, with its output untouched.

    `is_quiet`: the process speaks for itself, and ends without a report. The agent's answer confirms that the pipes would outlive it. If it is late, only that guarantee is missing.
    """
    hello = {
        "rank": first_rank + int(os.environ["RANK"]),
        "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
        "world_size": int(os.environ.get("WORLD_SIZE", "0")),
        "local_size": int(os.environ.get("LOCAL_WORLD_SIZE", "0")),
        "restart": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "launcher": launcher,
        "is_quiet": is_quiet,
        "at": time.time(),
    }
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", read_ends))]
    agent.sendmsg([json.dumps({"hello": hello}).encode() + b"\n"], rights)
    with contextlib.suppress(socket.timeout):
        if not agent.recv(1):
            raise OSError("the agent is gone")


def _become(command: list[str]) -> None:
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    os.execv(command[0], command)


def _become_rank(command: list[str], *, out: int, parent: int, was: dict[Any, Any], mask: Any) -> None:
    try:
        linux.die_with(parent)
        os.dup2(out, 1)  # both streams are one pipe, as with `2>&1`: only so their lines keep their order
        os.dup2(out, 2)
        for number, disposition in was.items():
            signal.signal(number, signal.SIG_IGN if disposition is signal.SIG_IGN else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _become(command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _die_of(number: int) -> None:
    """End this process by the same signal, so that torchrun sees what the rank died of."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has dumped its core already
    with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no disposition
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
