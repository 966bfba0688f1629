"""Send numbers from a training loop to Muster: one line of JSON on a Unix socket, without ever waiting.

Standard library only, Python 3.8+. Outside of Muster, or when the agent is gone, reports are dropped and cost little.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from typing import Any

SOCKET_ENV = "MUSTER_REPORT"
CHECKPOINTS_ENV = "MUSTER_CHECKPOINTS"
FROM_ENV = "MUSTER_FROM"
RETRY_SECONDS = 5.0  # between attempts to reach an agent that did not answer
BUFFER_BYTES = 1 << 20


def report(**values: Any) -> None:
    """Report training progress to Muster: `report(step=120, loss=0.42, accuracy=0.91)`.

    `step` is optional. With `total_steps`, the last step that there will be, Muster shows progress and the time left.
    Values are numbers or anything float() accepts (a 0-d tensor); others raise TypeError or ValueError. Costs a few
    microseconds. Never waits, and never fails because of the connection: what does not fit is dropped and counted.
    """
    _reporter.send(values)


def checkpoints() -> str:
    """Return the folder for checkpoints, kept across attempts, shared by all ranks; ./checkpoints outside of Muster."""
    path = os.environ.get(CHECKPOINTS_ENV) or os.path.join(os.getcwd(), "checkpoints")
    os.makedirs(path, exist_ok=True)
    return path


def start_from() -> str | None:
    """Return the folder with the checkpoints of the job that this one begins from (`--from`); None without one."""
    return os.environ.get(FROM_ENV) or None


class _Reporter:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self.reset()

    def reset(self) -> None:
        """Reset all state, also after a fork: the connection is the parent's, and its lock may have been held then."""
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._rest = b""  # unsent rest of a partly sent line
        self._dropped = 0
        self._retry_at = 0.0

    def send(self, values: dict[str, Any]) -> None:
        line = self._line(values)
        with self._lock:
            if self._socket is None and not self._connect():
                return
            self._write(line)

    def _line(self, values: dict[str, Any]) -> bytes:
        step = values.pop("step", None)
        names = self._names
        parts = []
        for name, value in values.items():
            key = names.get(name)
            if key is None:
                if not name:
                    raise ValueError("muster.report: a metric has no name")
                key = names[name] = json.dumps(name)
            try:
                parts.append(f"{key}:{_number(value)}")
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"muster.report: {name} is no number: {error}") from None
        return f"[{time.time():.3f},{_step(step)},{{{','.join(parts)}}}]\n".encode()

    def _connect(self) -> bool:
        address = os.environ.get(SOCKET_ENV)
        now = time.monotonic()
        if not address or now < self._retry_at:
            return False
        self._retry_at = now + RETRY_SECONDS
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            connection.connect("\0" + address[1:] if address.startswith("@") else address)
        except OSError:
            connection.close()
            return False
        self._socket, self._rest = connection, _announcement()
        return True

    def _write(self, line: bytes) -> None:
        if self._dropped:
            line = b'{"dropped":%d}\n' % self._dropped + line
        # A partly sent line must be completed before the next: half a line would corrupt both.
        pending = self._rest + line
        try:
            sent = self._socket.send(pending) if self._socket else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lose()
            return
        if sent >= len(self._rest):
            left = pending[sent:]
            self._dropped = 0 if sent > len(self._rest) else self._dropped + 1
            self._rest = left if sent > len(self._rest) else b""
        else:
            self._rest = self._rest[sent:]
            self._dropped += 1

    def _lose(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._rest = b""


def _number(value: Any) -> str:
    if type(value) is int or type(value) is bool:
        return repr(int(value))
    if isinstance(value, (str, bytes)):
        raise TypeError(f"report() takes numbers, not {value!r}")
    number = value if type(value) is float else float(value)
    # JSON has no NaN: null means "not a finite number".
    return repr(number) if math.isfinite(number) else "null"


def _step(value: Any) -> str:
    return "null" if value is None else str(int(value))


def _announcement() -> bytes:
    who = {
        "rank": _integer("RANK"),
        "local_rank": _integer("LOCAL_RANK"),
        "pid": os.getpid(),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    return json.dumps({"announce": who}).encode() + b"\n"


def _integer(name: str) -> int | None:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return None


_reporter = _Reporter()
os.register_at_fork(after_in_child=_reporter.reset)
