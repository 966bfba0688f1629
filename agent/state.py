"""The replica's folder: what to run, which agent runs it, how it went. docs/wire.md, section 1."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from dataclasses import dataclass, field, fields
from typing import Any, Iterator

from . import faultpoints, linux

ENDED = ("succeeded", "failed")
MOST_TOKEN_BYTES = 1 << 16
LOG_LIMIT_BYTES = 1 << 20  # of agent.log: errors repeat, disks are small


@dataclass(frozen=True)
class Spec:
    """replica.json. Unknown keys are ignored, so that a control plane one release newer is understood."""

    run: str
    attempt: int
    role: str
    index: int
    command: list[str]
    framework: str = "torchrun"  # a control plane of the release before knew no other
    processes: int = 1
    first_rank: int = 0  # the lowest rank of the role's replica 0
    is_rank: bool = False  # the command itself is the replica's one rank; False: it starts them
    env: dict[str, str] = field(default_factory=dict)
    secret_files: dict[str, str] = field(
        default_factory=dict
    )  # to be written before the command starts: path to content
    hold_port: int | None = None
    grace_seconds: float = 30
    start_timeout_seconds: float = 300  # how long all replicas may take to come up
    shared: str = ""
    mark: str = ""
    incarnation: int = 0  # how often its place was given to a new replica within the attempt
    is_elastic: bool = False  # ranks are numbered by their place: torchrun assigns its own again in each rendezvous
    control: dict[str, str] = field(default_factory=dict)
    wants_workspace: bool = False
    keeps_folder: bool = False  # the working folder outlasts the attempt, and the next one continues with its files
    cache: str = ""  # where files of code are shared with other replicas of this machine
    cache_bytes: int = 4 << 30
    mirror: bool = False
    give_up_seconds: float = 0  # without any answer from the control plane, until the code is given up; 0: never
    last_words: str = ""  # a file for the reason, where the status is not read
    working_dir: str = ""  # where the command starts: below its code, or an absolute path

    @property
    def ranks(self) -> range:
        """Return the ranks that the control plane expects of this replica."""
        start = self.first_rank + self.index * self.processes
        return range(start, start + self.processes)

    @property
    def checkpoints(self) -> str:
        """Return the folder for checkpoints, which outlasts the attempt; empty where none does."""
        return os.path.join(self.shared, "checkpoints") if self.shared else ""

    def start(self, code: str) -> str:
        """Return the folder where the command starts."""
        return os.path.normpath(os.path.join(code, self.working_dir))


class StateFolder:
    """One replica's folder. Small files, each replaced atomically, so that any process may read them."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.code = self.file("code")
        self.spool = self.file("spool")

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def spec(self) -> Spec:
        """Read replica.json.

        Raises OSError or ValueError when it is missing or is no JSON, TypeError when it lacks a key.
        """
        content = _read_json(self.file("replica.json"))
        known = {one.name for one in fields(Spec)}
        return Spec(**{key: value for key, value in content.items() if key in known})

    def token(self) -> str:
        """Return the bearer token, read again each time because it may be renewed. Empty when there is none."""
        try:
            with open(self.file("token"), encoding="ascii", opener=plain) as file:
                return file.read(MOST_TOKEN_BYTES).strip()
        except (OSError, ValueError):
            return ""

    def status(self) -> dict[str, Any]:
        try:
            return _read_json(self.file("status.json"))
        except (OSError, ValueError):
            return {}

    def write_status(self, state: str, **changes: Any) -> None:
        """Replace status.json. `started_at` is kept from the previous one."""
        status = {"state": state, "exit_code": None, "signal": None, "reason": "", "at": time.time(),
                  "started_at": self.status().get("started_at"), "is_drained": False}  # fmt: skip
        status.update(changes)
        with faultpoints.around("agent.status"):
            write_json(self.file("status.json"), content=status)

    def mark_undeliverable(self) -> None:
        with open(self.file("undeliverable"), "w", encoding="ascii", opener=plain):
            pass

    def mark_drained(self) -> None:
        status = self.status()
        if status:
            write_json(self.file("status.json"), content=dict(status, is_drained=True))

    def write_agent(self) -> None:
        """Write agent.json, which identifies the process to signal.

        `started` in clock ticks after boot, because a pid alone may belong to another process by then.
        """
        pid = os.getpid()
        write_json(
            self.file("agent.json"), content={"pid": pid, "started": linux.started(pid), "boot": linux.boot_id()}
        )

    def is_sealed(self) -> bool:
        return os.path.exists(os.path.join(os.path.dirname(self.path), "sealed"))

    @contextlib.contextmanager
    def agent_lock(self) -> Iterator[bool]:
        """Hold the lock of a running agent. Yields whether this process got it."""
        with _locked(self.file("agent.lock"), flags=fcntl.LOCK_EX | fcntl.LOCK_NB) as is_held:
            yield is_held

    @contextlib.contextmanager
    def attempt_lock(self) -> Iterator[None]:
        """Wait for and hold the lock that guards every spawn and the sealing of the attempt."""
        with _locked(os.path.join(os.path.dirname(self.path), "lock"), flags=fcntl.LOCK_EX):
            yield

    def trouble(self, text: str) -> None:
        """Append a line to agent.log. Never raises: reporting a failure must not be one."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n"
        with contextlib.suppress(OSError):
            with open(self.file("agent.log"), "a", encoding="utf-8", errors="replace", opener=plain) as file:
                if file.tell() < LOG_LIMIT_BYTES:
                    file.write(line)


def write_json(path: str, *, content: Any) -> None:
    """Write a new file and rename it: a reader gets the old content or the new one, never half of it."""
    unfinished = f"{path}.{os.getpid()}.new"
    with open(unfinished, "w", encoding="utf-8", opener=plain) as file:
        json.dump(content, file)
    os.replace(unfinished, path)


def plain(path: str, flags: int) -> int:
    """Open a plain file, for `open(..., opener=plain)`; raises OSError for anything else.

    A job may put a named pipe in the place of any file of its replica's: opening that would block forever, and with it
    the sender and every command of the control plane.
    """
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "is no file", path)


def _read_json(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8", opener=plain) as file:
        content = json.load(file)
    if not isinstance(content, dict):
        raise ValueError(f"{path} does not contain a JSON object")
    return content


@contextlib.contextmanager
def _locked(path: str, *, flags: int) -> Iterator[bool]:
    try:
        # Close-on-exec, as Python opens files: a lock inherited by a rank would mean "alive" after the agent's death.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (PermissionError, FileNotFoundError):
        yield True  # a pod's folder may have no writable parent; there the attempt's owner object guards
        return
    try:
        fcntl.flock(file, flags)
    except OSError:
        os.close(file)
        yield False
        return
    try:
        yield True
    finally:
        os.close(file)
