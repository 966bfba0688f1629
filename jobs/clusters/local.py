"""Replicas as processes of this machine. All state lies in files (docs/wire.md, section 1), so any process may call."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from controlplane import crash
from controlplane.errors import Sealed, Unreachable
from jobs.plan import Plan
from jobs.verdict import ENDED, ReplicaSeen, ReplicaState, Seen

from . import Expected, drains
from .host import Host, Identity
from .processes import LOOPBACK, describe, incarnation_of, mark, place_name, ports_needed

DEFAULT_AGENT = Path(__file__).resolve().parents[2] / "agent" / "agent.pyz"
DRAIN_SECONDS = 60  # how long an agent may go on sending what it has (docs/wire.md, section 2)
POLL_SECONDS = 0.5
LOCK_SECONDS = 5.0

_STATES = {
    "starting": ReplicaState.PENDING,
    "running": ReplicaState.RUNNING,
    "succeeded": ReplicaState.SUCCEEDED,
    "failed": ReplicaState.FAILED,
}


class LocalCluster:
    """`ROOT` is the folder of everything; `clock` gives seconds since the epoch."""

    MOUNTS = HAS_LOGS = HAS_NODES = False

    def __init__(self, ROOT: str, host: Host | None = None, clock: Callable[[], float] = time.time):  # noqa: N803 - named like in settings
        self.root = Path(ROOT)
        self.host = host or Host(DEFAULT_AGENT, more_env=settings.MUSTER_JOB_ENV)
        self.clock = clock
        self._known: dict[str, object] = {}

    def apply(self, plan: Plan) -> None:
        folder = self._attempt(plan.run, plan.attempt)
        with self._locked(folder):
            if (folder / "sealed").exists():
                raise Sealed(f"attempt {plan.attempt} of {plan.run} is closed")
            ports = self._ports(folder, plan)
            shared = self.root / "jobs" / plan.run / "shared"
            shared.mkdir(exist_ok=True)
            volumes = {name: str(self._volume(plan.team, name)) for name in plan.volumes}
            for role, index in plan.replicas():
                place = folder / place_name(role.name, index, plan.incarnation(role.name, index))
                if _identity(place) is None:
                    told = describe(
                        plan, role, index, ports=ports, volumes=volumes, control_file=str(self.root / "control.json")
                    )
                    here = {"shared": str(shared), "cache": str(self.root / "cache")}
                    self._spawn(place, {**told, **here}, plan.secrets.get(place_name(role.name, index), ""))
        self._active(plan.run, plan.attempt).touch()

    def observe(self, run: str, attempt: int, expected: Expected) -> Seen:
        now = datetime.fromtimestamp(self.clock(), UTC)
        folder = self._attempt(run, attempt)
        try:
            newest = _newest(folder)
            replicas = tuple(
                self._look(folder, mark(run, attempt), role, index, newest.get(place_name(role, index), 0))
                for role, index in expected
            )
            return Seen(replicas, as_of=now, is_sealed=(folder / "sealed").exists())
        except OSError as error:
            raise Unreachable(f"cannot read {folder.name}: {error.strerror}") from error

    def delete(self, run: str, attempt: int, grace_seconds: int) -> None:
        folder = self._attempt(run, attempt)
        with self._locked(folder):
            with crash.around("local.seal"):
                (folder / "sealed").touch()
        places = [place for place in folder.iterdir() if place.is_dir()]
        for place in places:
            self._end(place, mark(run, attempt), grace_seconds)
        if not any(self._is_alive(place, mark(run, attempt)) for place in places):
            self._active(run, attempt).unlink(missing_ok=True)

    def retire(self, run: str, attempt: int, places: Expected, grace_seconds: int) -> None:
        folder = self._attempt(run, attempt)
        newest = _newest(folder)
        for role, index in places:
            place = folder / place_name(role, index, newest.get(place_name(role, index), 0))
            self._end(place, mark(run, attempt), grace_seconds)

    def open_attempts(self) -> list[tuple[str, int]]:
        named = (name.rpartition("-") for name in self._open_attempts())
        return [(run, int(attempt)) for run, _, attempt in named]

    def changes(self) -> Iterator[str]:
        """Polls the few attempts that are open: a killed agent sends no message."""
        self._forget_old_secrets()
        while True:
            current = {name: self._fingerprint(name) for name in self._open_attempts()}
            changed = {name for name in {*current, *self._known} if current.get(name) != self._known.get(name)}
            self._known = dict(current)
            yield from sorted({name.rpartition("-")[0] for name in changed})
            yield ""
            time.sleep(POLL_SECONDS if current else 2 * POLL_SECONDS)

    def write_control(self, url: str) -> None:
        """Tell the agents of this cluster where the control plane answers."""
        self.root.mkdir(parents=True, exist_ok=True)
        _write(self.root / "control.json", json.dumps({"url": url}))

    def _volume(self, team: str, name: str) -> Path:
        """A folder that all jobs of a team share, made when it is first named."""
        folder = self.root / "volumes" / team / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # -- one replica

    def _spawn(self, place: Path, told: dict[str, Any], token: str) -> None:
        place.mkdir(exist_ok=True)
        _write(place / "token", token)
        _write(place / "replica.json", json.dumps(told, indent=1))
        with crash.around("local.spawn"):
            _write(place / "spawned.json", self.host.spawn(place).to_json())

    def _look(self, folder: Path, carried: str, role: str, index: int, incarnation: int) -> ReplicaSeen:
        """The newest one at this place: it is begun only where nothing is left of the one before."""
        place = folder / place_name(role, index, incarnation)
        if _identity(place) is None:
            return ReplicaSeen(role, index, ReplicaState.ABSENT)
        has_agent = self._has_agent(place)
        status = _status(place)  # read after: an agent writes its last word before it goes
        state = _STATES.get(str(status.get("state")), ReplicaState.PENDING)
        reason = str(status.get("reason") or "")
        is_alive = has_agent or drains.is_owed(place, self.host)
        if state not in ENDED and not has_agent:
            state, reason = ReplicaState.LOST, "its agent was killed or the machine restarted"
            is_alive = is_alive or bool(self.host.carriers(carried, place.name))
        end = status.get("exit_code"), status.get("signal")
        return ReplicaSeen(role, index, state, is_alive, *end, reason, incarnation=incarnation)

    def _has_agent(self, place: Path) -> bool:
        one = _identity(place)
        return one is not None and self.host.is_alive(one)

    def _is_alive(self, place: Path, carried: str) -> bool:
        """The agent lives, or it died without a word and left processes or unsent lines behind."""
        one = _identity(place)
        if one is None:
            return False
        if self.host.is_alive(one) or drains.is_owed(place, self.host):
            return True
        if _STATES.get(str(_status(place).get("state"))) in ENDED:
            return False
        return bool(self.host.carriers(carried, place.name))

    def _end(self, place: Path, carried: str, grace_seconds: int) -> None:
        one = _identity(place)
        if one is None:
            return
        asked = place / "stop_asked"
        if not self.host.is_alive(one):
            self._tidy(place, carried)
            if not self._is_alive(place, carried):
                forget_secrets(place)
        elif not asked.exists():
            _write(asked, str(self.clock()))
            self.host.signal(one, signal.SIGTERM)
            self.host.signal(one, signal.SIGCONT)  # a stopped agent would not see it, and be killed after all its time
        elif self.clock() > float(asked.read_text()) + grace_seconds + DRAIN_SECONDS + 15:
            self.host.signal(one, signal.SIGKILL)
            self.host.kill_carriers(carried, place.name)

    def _tidy(self, place: Path, carried: str) -> None:
        """After an agent that is gone: first what it left running, then what it left unsent."""
        if _STATES.get(str(_status(place).get("state"))) not in ENDED and self.host.carriers(carried, place.name):
            self.host.kill_carriers(carried, place.name)
        else:
            drains.start(place, self.host)

    def _forget_old_secrets(self) -> None:
        """Of attempts that were over before ended replicas forgot their secrets by themselves."""
        for token in self.root.glob("jobs/*/*/*/token"):
            attempt = token.parent.parent
            if not attempt.name.isdecimal() or not (attempt / "sealed").exists():  # a job's own file, or not over
                continue
            run, number = attempt.parent.name, int(attempt.name)
            if not self._active(run, number).exists() and not self._is_alive(token.parent, mark(run, number)):
                forget_secrets(token.parent)

    # -- files

    def _attempt(self, run: str, attempt: int) -> Path:
        return self.root / "jobs" / run / str(attempt)

    def _active(self, run: str, attempt: int) -> Path:
        folder = self.root / "active"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{run}-{attempt}"

    def _open_attempts(self) -> list[str]:
        try:
            return os.listdir(self.root / "active")
        except FileNotFoundError:
            return []

    def _fingerprint(self, name: str) -> object:
        run, _, attempt = name.rpartition("-")
        folder = self._attempt(run, int(attempt))
        places = sorted(folder.glob("*/replica.json"))
        return tuple(
            (place.parent.name, _status(place.parent).get("state"), self._is_alive(place.parent, name))
            for place in places
        )

    def _ports(self, folder: Path, plan: Plan) -> dict[str, int]:
        """The attempt's ports, chosen once. The replica that will listen holds its port until the launcher binds it."""
        kept = folder / "ports.json"
        if kept.exists():
            return dict(json.loads(kept.read_text()))
        ports = {name: _free_port() for name in ports_needed(plan)}
        _write(kept, json.dumps(ports))
        return ports

    @contextlib.contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """The lock that guards every spawn: of this call, of the agent's launcher, and of the sealing."""
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "ab") as lock:
            _lock_soon(lock.fileno())
            yield


def _lock_soon(lock: int) -> None:
    """Whoever holds it needs milliseconds. A process that was stopped with it must not make us stand still too."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise Unreachable(f"the attempt's lock was held by somebody else for {LOCK_SECONDS:g} s") from None
        time.sleep(0.01)


def forget_secrets(place: Path) -> None:
    """A replica that ended and sent everything needs neither its environment, with the job's secrets, nor its token again.

    The token goes last: that it is gone says that nothing is left to do.
    """
    if (place / "token").exists():
        with contextlib.suppress(FileNotFoundError, ValueError):
            told = json.loads((place / "replica.json").read_text())
            _write(place / "replica.json", json.dumps({**told, "env": {}}, indent=1))
        (place / "token").unlink(missing_ok=True)


def _identity(place: Path) -> Identity | None:
    """Who runs this replica. The spawner's word, or the agent's own where the spawner died before it wrote."""
    for name in ("spawned.json", "agent.json"):
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            return Identity.from_json((place / name).read_text())
    return None


def _newest(folder: Path) -> dict[str, int]:
    """Of places that were given anew, the highest incarnation that was begun."""
    with contextlib.suppress(FileNotFoundError):
        found = sorted(incarnation_of(name) for name in os.listdir(folder))
        return {name: number for name, number in found if number and _identity(folder / f"{name}.{number}")}
    return {}


def _status(place: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return dict(json.loads((place / "status.json").read_text()))
    return {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _write(path: Path, text: str) -> None:
    """Whole or not at all: readers of other processes never see half a file."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.touch(mode=0o600)
    part.write_text(text)
    part.replace(path)
