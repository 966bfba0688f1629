"""One installation per data folder: the lock that ensures it, and the note with which others find it.

`instance.json` (0600) holds the supervisor's identity, the address and the children's environment.
"""

import fcntl
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .files import private_folder, read_json, write_json
from .processes import Identity, identity, is_alive, send, wait_gone

STOP_SECONDS = 90.0  # suspending jobs takes up to 40, ending every process up to 40 more


@dataclass
class Instance:
    data: Path
    note: dict[str, Any] = field(default_factory=dict)
    _lock: int = -1

    def claim(self) -> bool:
        """Become the only instance of this folder; False when there is one already. Held until the process ends."""
        private_folder(self.data)
        lock = os.open(self.data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def record(self, **facts: Any) -> None:
        me = identity(os.getpid())
        self.note |= {"supervisor": me.as_json() if me else None, **facts}
        write_json(self.data / "instance.json", value=self.note)

    def forget(self) -> None:
        (self.data / "instance.json").unlink(missing_ok=True)


def running(data: Path) -> dict[str, Any] | None:
    """Return the note of the instance that runs in this folder."""
    note = read_json(data / "instance.json")
    return note if note and note.get("supervisor") and is_alive(Identity(**note["supervisor"])) else None


def starting(data: Path, *, seconds: float = 5.0) -> dict[str, Any] | None:
    """Like `running`, but wait for an instance that holds the lock and may not have written its note yet."""
    until = time.monotonic() + seconds
    while not (note := running(data)) and time.monotonic() < until:
        time.sleep(0.05)
    return note


def stop(data: Path) -> bool:
    """End the running instance as Ctrl-C would, and wait for it. False when there is none."""
    note = running(data)
    if note is None:
        return False
    supervisor = Identity(**note["supervisor"])
    send(supervisor, number=signal.SIGTERM)
    if not wait_gone(supervisor, seconds=STOP_SECONDS):
        send(supervisor, number=signal.SIGTERM)  # like the second Ctrl-C: do not wait for the jobs any longer
        wait_gone(supervisor, seconds=STOP_SECONDS)
    return True
