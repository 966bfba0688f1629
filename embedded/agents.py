"""The last resort of a stop: end this installation's remaining agents, found by their state folders.

Normally suspending the jobs has ended them all. What is ended here, the next start's reconciler finds gone.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from common.machine import trees
from common.machine.process_environ import environs, pids

from .files import read_foreign_json
from .processes import Identity, identity, is_alive, send, wait_gone

GRACE_SECONDS = 8.0
MOST_WORDS = 4096  # bytes of a command line
SPAWNED, DRAIN = "spawned.json", "drain.json"


def end_agents(root: Path) -> int:
    """End all agents; return how many there were.

    The second SIGTERM ends the grace period (docs/wire.md, section 1).
    """
    agents = list(living(root))
    for number in (signal.SIGTERM, signal.SIGTERM):
        for agent in agents:
            send(agent, number=number)
    for agent in agents:
        if not wait_gone(agent, seconds=GRACE_SECONDS):
            send(agent, number=signal.SIGKILL)
    for pid in (*_carriers(root), *_keepers(root)):
        if stray := identity(pid):
            send(stray, number=signal.SIGKILL)
    return len(agents)


def living(root: Path) -> Iterator[Identity]:
    seen = set()
    for place, note in _notes(root):
        one = _identity(note)
        if one and one not in seen and is_alive(one) and _runs_as(one.pid, place.lstat().st_uid):
            seen.add(one)
            yield one


def _notes(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield folders of replicas, each with a note that may name the process that runs it or sends what it left.

    The note is beside the folder where that belongs to the jobs' user, else in it.
    """
    attempts = (
        attempt for run in trees.folders(root / "jobs") for attempt in trees.folders(run) if attempt.name.isdecimal()
    )
    for attempt in attempts:
        for place in trees.folders(attempt):
            yield from ((place, place.with_name(f"{place.name}.{name}")) for name in (SPAWNED, DRAIN))
            yield from ((place, place / name) for name in (SPAWNED, "agent.json", DRAIN))


def _identity(path: Path) -> Identity | None:
    known = read_foreign_json(path)
    try:
        if path.name.endswith(DRAIN):  # docs/wire.md, section 1; an older release wrote the process alone
            known = known.get("process") or known
        return Identity(int(known["pid"]), int(known["started"]), str(known["boot"]))
    except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
        return None


def _runs_as(pid: int, uid: int) -> bool:
    """Return whether the process runs as this user.

    A job may write to its own folder: a process of another user that it names there is not its agent.
    """
    if uid == os.geteuid():
        return True
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return any(line.split() == ["Uid:", *[str(uid)] * 4] for line in status.splitlines())


def _carriers(root: Path) -> Iterator[int]:
    """Yield processes of ranks whose job folder is in this installation."""
    wanted = [b"\0MUSTER_SHARED=" + os.fsencode(path) + b"/" for path in {root, root.resolve()}]
    return (pid for pid, env in environs() if any(one in env for one in wanted))


def _keepers(root: Path) -> Iterator[int]:
    """Yield processes that agents forked, such as the guardian, which a job may have stopped.

    They are found by their command lines, which name the agent's program and a replica's folder.
    """
    wanted = tuple(os.fsencode(path / "jobs") + b"/" for path in {root, root.resolve()})
    for pid in pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()[:MOST_WORDS].split(b"\0")
        except OSError:
            continue
        if len(words) > 3 and words[1].endswith(b".pyz") and words[3].startswith(wanted):
            yield pid
