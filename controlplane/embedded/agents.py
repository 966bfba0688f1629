"""The last resort of a stop: agents of this installation that are still there are ended by their state folders.

Normally suspending the jobs has ended them all. Whatever is ended here, the next start's reconciler finds gone.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from .files import read_foreign_json
from .processes import Identity, identity, is_alive, send, wait_gone

GRACE_SECONDS = 8.0
SPAWNED = "spawned.json"


def end_agents(root: Path) -> int:
    """How many had to be ended. The second SIGTERM takes the grace away (docs/wire.md, section 1)."""
    agents = list(living(root))
    for number in (signal.SIGTERM, signal.SIGTERM):
        for agent in agents:
            send(agent, number=number)
    for agent in agents:
        if not wait_gone(agent, seconds=GRACE_SECONDS):
            send(agent, number=signal.SIGKILL)
    for pid in _carriers(root):
        if stray := identity(pid):
            send(stray, number=signal.SIGKILL)
    return len(agents)


def living(root: Path) -> Iterator[Identity]:
    seen = set()
    for place, note in _notes(root):
        if not place.parent.name.isdecimal():  # it lies in a job's own folder, which is no attempt
            continue
        one = _identity(note)
        if one and one not in seen and is_alive(one) and _runs_as(one.pid, place.lstat().st_uid):
            seen.add(one)
            yield one


def _notes(root: Path) -> Iterator[tuple[Path, Path]]:
    """Folders of replicas, and what says who runs them: beside the folder where that belongs to the jobs' user, else in it."""
    for note in root.glob(f"jobs/*/*/*.{SPAWNED}"):
        yield note.with_name(note.name.removesuffix(f".{SPAWNED}")), note
    for name in (SPAWNED, "agent.json"):
        for note in root.glob(f"jobs/*/*/*/{name}"):
            yield note.parent, note


def _identity(path: Path) -> Identity | None:
    known = read_foreign_json(path)
    try:
        return Identity(int(known["pid"]), int(known["started"]), str(known["boot"]))
    except (TypeError, KeyError, ValueError, OverflowError):
        return None


def _runs_as(pid: int, uid: int) -> bool:
    """A job may write to its own folder: a process of another user that it names there is not its agent."""
    if uid == os.geteuid():
        return True
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return any(line.split() == ["Uid:", *[str(uid)] * 4] for line in status.splitlines())


def _carriers(root: Path) -> Iterator[int]:
    """Processes of ranks whose job folder lies in this installation."""
    wanted = tuple(b"MUSTER_SHARED=" + os.fsencode(path) + b"/" for path in {root, root.resolve()})
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                environ = Path(entry.path, "environ").read_bytes()
            except OSError:
                continue
            if any(value.startswith(wanted) for value in environ.split(b"\0")):
                yield int(entry.name)
