"""Look once a minute at the team's volumes that are mounted here: how full they are, and when they were last written to.

In a thread of its own, because a file system that does not answer must not keep anything else from being sent.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Mapping

from .outbox import Outbox

PREFIX = "MUSTER_VOLUME_"  # of the variables with their paths
FIRST_SECONDS, EVERY_SECONDS = 2.0, 60.0
MOST = 2**53  # bytes; a file system without a bound of its own may say more
MOST_ENTRIES = 10_000  # of a volume's top folder that are looked at


class MountedVolumes(threading.Thread):
    def __init__(self, env: Mapping[str, str], *, outbox: Outbox, trouble: Callable[[str], None]) -> None:
        super().__init__(name="volumes", daemon=True)
        self._paths = {name_of(name): path for name, path in env.items() if name.startswith(PREFIX)}
        self._outbox, self._trouble = outbox, trouble
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        wait = FIRST_SECONDS
        while self._paths and not self._over.wait(wait):
            wait = EVERY_SECONDS
            try:
                found = {name: look(path) for name, path in self._paths.items()}
                self._outbox.newest("volumes", at=time.time(), volumes=found)
            except OSError as error:  # a mount that is gone; the next look may find it
                self._trouble(f"a volume cannot be looked at: {error}")


def name_of(variable: str) -> str:
    """Return the volume's name: MUSTER_VOLUME_DATA_SETS is that of `data-sets`."""
    return variable[len(PREFIX) :].lower().replace("_", "-")


def look(path: str) -> dict[str, Any]:
    """Return size and free space in bytes, and when something in the top folder was last written, since the epoch."""
    about = os.statvfs(path)
    newest = os.stat(path).st_mtime
    with os.scandir(path) as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_ENTRIES:
                break
            newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    total, free = about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize
    return {"total": min(total, MOST), "free": min(free, MOST), "written_at": int(newest)}
