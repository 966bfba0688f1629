"""What an agent that was killed had not sent yet lies in its spool; another one is started to send just that.

A replica that still owes lines is not gone: its attempt stays open until they arrived, or were given up. So a job's log
is complete when the job says that it is over.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from controlplane import crash

from . import handed
from .host import Host, Identity

MOST_TRIES = (
    5  # each ends by itself (agent/replica.py, DRAIN_SECONDS) and says when it gives up; more than one is a crash
)


def is_owed(place: Path, host: Host) -> bool:
    """Asked of a replica without a living agent."""
    is_hopeless = (place / "undeliverable").exists() or _tries(place) >= MOST_TRIES
    return _runs(place, host) or (not is_hopeless and _has_unsent(place))


def start(place: Path, host: Host) -> None:
    """Send what is left, unless somebody does. Only once nothing of the replica runs: it closes its status."""
    if is_owed(place, host) and not _runs(place, host):
        handed.append(place / "drains", b"+")
        with crash.around("local.drain"):
            handed.write(place / "drain.json", host.spawn(place, "--drain").to_json())


def _has_unsent(place: Path) -> bool:
    """Batches, or a journal of what would have been the next one (docs/wire.md, section 1)."""
    return any(path.suffix in (".batch", ".journal") for path in (place / "spool").glob("*.*"))


def _tries(place: Path) -> int:
    try:
        return (place / "drains").stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _runs(place: Path, host: Host) -> bool:
    """By the note of its start, or by the lock it holds, where whoever started it died before the note was written."""
    if not _tries(place):
        return False
    with contextlib.suppress(*handed.UNREADABLE):
        if host.is_alive(Identity.from_json(handed.read(place / "drain.json"))):
            return True
    try:
        lock = os.open(place / "agent.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # none, or a link that a job made
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
