"""Embedded Redis: on loopback, with a password, nothing on disk. It carries doorbells and may lose them."""

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from . import EmbeddedError
from .account import Account
from .files import last_lines, open_log
from .processes import spawn

START_SECONDS = 10.0
STOP_SIGNALS = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))

_SETTINGS = """
bind 127.0.0.1
port {port}
requirepass {password}
dir {folder}
daemonize no
save ""
appendonly no
databases 1
maxmemory 64mb
maxmemory-policy allkeys-lru
tcp-backlog 128
hz 2
loglevel notice
"""


@dataclass(frozen=True)
class Redis:
    folder: Path
    program: Path
    account: Account | None
    password: str
    port: int
    log: Path

    name = "redis"
    stop_signals = STOP_SIGNALS
    dies_by = signal.SIGTERM

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        """Nothing: its settings are sent to it when it starts."""

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Start Redis with its settings on standard input: on the command line every user could read the password."""
        log = open_log(self.log)
        try:
            process = spawn(
                [self.program, "-"], log=log, account=self.account, env={}, folder=self.folder, stdin=subprocess.PIPE
            )
        finally:
            os.close(log)
        assert process.stdin is not None
        try:
            process.stdin.write(_SETTINGS.format(port=self.port, password=self.password, folder=self.folder).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended already; `wait_ready` reports why
        return process

    def wait_ready(self, process: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if process.poll() is not None:
                raise EmbeddedError(
                    f"Redis ended with code {process.returncode}; {self.log} ends with:\n{last_lines(self.log)}"
                )
            if self._answers():
                return
            time.sleep(0.02)
        raise EmbeddedError(f"Redis did not answer in {START_SECONDS:.0f} s; its log is {self.log}")

    def _answers(self) -> bool:
        """Return whether our server answers: the password distinguishes it from another program on that port."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                link.sendall(f"AUTH {self.password}\r\n".encode())
                return link.recv(64).startswith(b"+OK")
        except OSError:
            return False
