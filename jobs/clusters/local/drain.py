"""Send what a killed agent had not sent: it is in the spool, and another agent is started to send just that.

A replica with unsent lines is not gone: its attempt stays open until they arrived, or were given up. So a job's log is
complete when the job is reported as over. All of it is bounded: whatever a job does to the sending process, or to its
files, keeps the attempt open for a limited time only.
"""

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from signal import SIGKILL

from common import faultpoints

from . import handed
from .host import Host, Identity

# Each ends by itself (agent/replica.py, DRAIN_SECONDS) and reports when it gives up: a second try means that one was
# killed.
MOST_TRIES = 5
MOST_SECONDS = 75  # per try: the agent's 60, and its start and end
ALL_SECONDS = 2 * MOST_SECONDS  # from the first start on; after that no other is started
NOTE = "drain.json"


@dataclass(frozen=True)
class _Note:
    """What was started for a replica. Times in seconds since the epoch; `process` is written once there is one."""

    tries: int = 0
    first_at: float = 0.0
    at: float = 0.0
    process: Identity | None = None


def is_owed(place: Path, host: Host, now: float) -> bool:
    """Whether lines are still to be sent, for a replica without a living agent."""
    note = _read(place)
    return _runs(place, note, host, now=now) or _is_due(place, note, now)


def start(place: Path, host: Host, now: float) -> None:
    """Send the rest, unless that is already happening.

    Call it only once nothing of the replica runs: it closes its status.
    """
    note = _read(place)
    if _runs(place, note, host, now=now):
        if note.process and now > note.at + MOST_SECONDS:  # stopped by its job, for example
            host.signal(note.process, SIGKILL)
    elif _is_due(place, note, now):
        note = _Note(note.tries + 1, note.first_at or now, now)
        _write(place, note)
        with faultpoints.around("local.drain"):
            _write(place, replace(note, process=host.spawn(place, "--drain")))


def _is_due(place: Path, note: _Note, now: float) -> bool:
    is_hopeless = note.tries >= MOST_TRIES or (note.tries > 0 and now > note.first_at + ALL_SECONDS)
    return not is_hopeless and not handed.is_there(place / "undeliverable") and _has_unsent(place)


def _has_unsent(place: Path) -> bool:
    """Whether there are batches, or a journal of the next one (docs/wire.md, section 1)."""
    return any(name.endswith((".batch", ".journal")) for name in handed.names(place / "spool"))


def _runs(place: Path, note: _Note, host: Host, *, now: float) -> bool:
    """Whether a sender is running: by its note, or by its lock if its starter died before it noted the process."""
    if note.process:
        return host.is_alive(note.process)
    return bool(note.tries) and now <= note.at + MOST_SECONDS and _is_locked(place / "agent.lock")


def _is_locked(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # none, or a link that a job made
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _read(place: Path) -> _Note:
    with contextlib.suppress(*handed.UNREADABLE):
        known = json.loads(handed.read(handed.own_note(place, NOTE)))
        process = Identity(**known["process"]) if known["process"] else None
        return _Note(int(known["tries"]), float(known["first_at"]), float(known["at"]), process)
    return _Note()


def _write(place: Path, note: _Note) -> None:
    handed.write(handed.own_note(place, NOTE), json.dumps(asdict(note)))
