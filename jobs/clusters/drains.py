"""What an agent that was killed had not sent yet lies in its spool; another one is started to send just that.

A replica that still owes lines is not gone: its attempt stays open until they arrived, or were given up. So a job's log
is complete when the job says that it is over.
"""

import contextlib
import fcntl
from pathlib import Path

from controlplane import crash

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
        with open(place / "drains", "ab") as tries:
            tries.write(b"+")
        with crash.around("local.drain"):
            (place / "drain.json").write_text(host.spawn(place, "--drain").to_json())


def _has_unsent(place: Path) -> bool:
    """Batches, or a journal of what would have been the next one (docs/wire.md, section 1)."""
    return any(path.suffix in (".batch", ".journal") for path in (place / "spool").glob("*.*"))


def _tries(place: Path) -> int:
    try:
        return (place / "drains").stat().st_size
    except FileNotFoundError:
        return 0


def _runs(place: Path, host: Host) -> bool:
    """By the note of its start, or by the lock it holds, where whoever started it died before the note was written."""
    if not _tries(place):
        return False
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        if host.is_alive(Identity.from_json((place / "drain.json").read_text())):
            return True
    try:
        with open(place / "agent.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
