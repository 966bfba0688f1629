"""Replicas as processes of this machine. All state is in files (docs/wire.md, section 1), so any process may call."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from common import faultpoints
from common.errors import Problem, Refused, Sealed, Unreachable
from common.machine import job_user, trees
from common.machine.job_user import JobUser, can_run
from common.machine.memory import Memory, memory
from jobs.clusters import Expected, Placement, Room
from jobs.clusters.replica_file import LOOPBACK, describe, incarnation_of, mark, place_name, ports_needed
from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import Plan, Role
from jobs.core.verdict import ENDED, ReplicaSeen, ReplicaState, Seen
from queues.shape import ReplicaShape

from . import devices, drain, handed
from .folders import Folders
from .host import Host, Identity

DEFAULT_AGENT = Path(__file__).resolve().parents[3] / "agent" / "agent.pyz"
SECRETS = "secrets"  # in a replica's folder: files of the team's secrets, by name
DRAIN_SECONDS = 60  # how long an agent may go on sending its data (docs/wire.md, section 2)
NOW_SECONDS = 15  # how long an agent may take to end its replica without any grace period
POLL_SECONDS = 0.5
LOCK_SECONDS = 5.0
SLOTS_PER_CORE = 16
# What the user of jobs must be able to do: read the interpreter's packages, and the agent.
IMPORTS = (
    "import importlib.util, sys; open(sys.argv[1], 'rb').close(); sys.exit(importlib.util.find_spec('celery') is None)"
)

_STATES = {
    "starting": ReplicaState.PENDING,
    "running": ReplicaState.RUNNING,
    "succeeded": ReplicaState.SUCCEEDED,
    "failed": ReplicaState.FAILED,
}


class LocalCluster(Folders):
    """The local adapter. `ROOT` is its folder; `clock` gives seconds since the epoch.

    `user` is the user that jobs run as, None for our own.
    """

    MOUNTS = HAS_LOGS = SEPARATES = FINDS_BY_NAME = MAKES_PODS = False
    HAS_NODES = True  # one, and its GPUs are counted
    OPERATORS: frozenset[str] = frozenset()
    shape, namespace = ReplicaShape(), ""

    def __init__(
        self,
        ROOT: str,  # noqa: N803 - named like in settings
        host: Host | None = None,
        clock: Callable[[], float] = time.time,
        *,
        user: JobUser | None = None,
        inventory: Callable[[], Sequence[str]] = devices.of_this_machine,
        memory: Callable[[], Memory] = memory,
    ):
        self.user = user if host else job_user.find(settings.MUSTER_JOB_USER)
        # Another user cannot pass through a link in a folder of ours.
        self.root = Path(ROOT).resolve() if self.user else Path(ROOT)
        self.host = host or Host(DEFAULT_AGENT, more_env=settings.MUSTER_JOB_ENV, home=self.root / "home")
        self.clock, self.inventory, self.memory = clock, inventory, memory
        self._is_prepared = False
        self._preparing = threading.Lock()
        self._known: dict[str, object] = {}

    def apply(self, plan: Plan) -> None:
        self.prepare()
        folder = self._attempt(plan.ref)
        with self._locked(folder):
            user = self._user_of(folder)
            if handed.is_there(folder / "sealed"):
                raise Sealed(f"attempt {plan.attempt} of {plan.run} is closed")
            ports = self._ports(folder, plan)
            visible = self._devices(plan)
            shared = _given(self.root / "jobs" / plan.run / "shared", user)
            volumes = {name: str(self._volume(plan.team, name, user)) for name in plan.volumes}
            for role, index in plan.replicas():
                place = folder / place_name(role.name, index, plan.incarnation(role.name, index))
                if _identity(place) is None:
                    config = describe(
                        plan, role, index, ports=ports, volumes=volumes, control_file=str(self.root / "control.json"),
                        secrets_folder=str(place / SECRETS), start_folder=self.start_folder(plan),
                    )  # fmt: skip
                    env = {**config["env"], **visible.get(place_name(role.name, index), {})}
                    here = {"env": env, "shared": str(shared), "cache": str(self.root / "cache")}
                    token = plan.secrets.get(place_name(role.name, index), "")
                    self._spawn(place, {**config, **here}, token, user=user)
        self._active(plan.ref).touch()

    def observe(self, ref: AttemptRef, expected: Expected) -> Seen:
        now = datetime.fromtimestamp(self.clock(), UTC)
        folder, carried = self._attempt(ref), mark(ref.run, ref.number)
        try:
            newest = _newest(folder)
            replicas = tuple(
                self._look(folder, carried, role, index=index, incarnation=newest.get(place_name(role, index), 0))
                for role, index in expected
            )
            return Seen(replicas, as_of=now, is_sealed=handed.is_there(folder / "sealed"))
        except OSError as error:
            raise Unreachable(f"cannot read {folder.name}: {error.strerror}") from error

    def delete(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        folder, carried = self._attempt(ref), mark(ref.run, ref.number)
        if not handed.is_there(folder / "sealed"):
            self._seal(folder)
        places = trees.folders(folder)
        for place in places:
            self._end(place, carried, grace_seconds, is_now=is_now)
        if not any(self._is_alive(place, carried) for place in places):
            self._active(ref).unlink(missing_ok=True)

    def _seal(self, folder: Path) -> None:
        """Seal the attempt under the lock, so that no replica can be started behind it.

        Jobs can hold that lock too, and must not outlive their end by it: after LOCK_SECONDS we seal anyway. A holder
        that has not released it by then starts nothing, and what a stalled process starts later is swept as a stray.
        """
        with contextlib.ExitStack() as held:
            with contextlib.suppress(Unreachable):
                held.enter_context(self._locked(folder))
            with faultpoints.around("local.seal"):
                (folder / "sealed").touch()

    def end_replicas(self, ref: AttemptRef, places: Expected, grace_seconds: int) -> None:
        folder = self._attempt(ref)
        newest = _newest(folder)
        for role, index in places:
            place = folder / place_name(role, index, newest.get(place_name(role, index), 0))
            self._end(place, mark(ref.run, ref.number), grace_seconds)

    def placement(
        self, roles: Sequence[Role], *, resource: str, node_slots: int, excluded: Collection[str] = ()
    ) -> Placement:
        there = len(self.inventory()) if resource == devices.RESOURCE else 0
        wanted = sum(role.replicas * role.slots for role in roles)
        if not there or wanted <= there:
            return Placement()
        parts = " and ".join(f"{role.replicas} x {role.slots} of {role.name}" for role in roles if role.slots)
        words = f"{parts} need a GPU each, and this machine has {there}; lower nodes or nproc_per_node"
        return Placement(Problem("nodes", roles[0].replicas, words))

    def room(self) -> Room | None:
        each = settings.MUSTER_LOCAL_SLOT_MIB << 20
        if not each:
            return None
        there = self.memory()
        return Room(max(1, min(there.total // each, SLOTS_PER_CORE * (os.cpu_count() or 1))), there.available // each)

    def open_attempts(self, namespace: str = "") -> list[AttemptRef]:
        return [_named(name) for name in self._open_attempts()]

    def changes(self) -> Iterator[str]:
        """Yield runs that changed, by polling the few open attempts: a killed agent sends no message."""
        self._forget_old_secrets()
        while True:
            current = {name: self._fingerprint(name) for name in self._open_attempts()}
            changed = {name for name in {*current, *self._known} if current.get(name) != self._known.get(name)}
            self._known = dict(current)
            yield from sorted({name.rpartition("-")[0] for name in changed})
            yield ""
            time.sleep(POLL_SECONDS if current else 2 * POLL_SECONDS)

    def write_control(self, url: str) -> None:
        """Publish the control plane's address to the agents of this cluster."""
        self.root.mkdir(parents=True, exist_ok=True)
        handed.write(self.root / "control.json", json.dumps({"url": url}), mode=0o644)

    def _volume(self, team: str, name: str, user: JobUser | None) -> Path:
        """Return a folder that all jobs of a team share, created on first use."""
        if user:
            for folder in (self.root / "volumes", self.root / "volumes" / team):
                handed.passage(folder)
        return _given(self.root / "volumes" / team / name, user)

    def _devices(self, plan: Plan) -> dict[str, dict[str, str]]:
        """Return each replica's GPU variables: its own GPUs, or none.

        If no GPU is known, `gpu` replicas get no variables.
        """
        places = [(role, place_name(role.name, index)) for role in plan.roles for index in range(role.replicas)]
        if plan.resource != devices.RESOURCE:
            return {place: devices.environment(()) for _, place in places}
        there = self.inventory()
        if not there:
            return {}
        attempt, kept = mark(plan.run, plan.attempt), self.root / "devices.json"
        with open(self.root / "devices.lock", "ab") as lock:
            _lock_soon(lock.fileno())
            held = {one: words for one, words in _read_json(kept).items() if one == attempt or not self._is_over(one)}
            try:
                found = devices.assign(held, attempt, {place: role.slots for role, place in places}, there=there)
            except devices.NotEnough as error:
                raise (Refused if error.is_final else Unreachable)(f"attempt {plan.attempt} {error}") from error
            handed.write(kept, json.dumps({**held, attempt: found}))
        return {place: devices.environment(words) for place, words in found.items()}

    def _is_over(self, attempt: str) -> bool:
        run, _, number = attempt.rpartition("-")
        if not run or not number.isdecimal():
            return True
        folder = self._attempt(_named(attempt))
        if not folder.exists():
            return True
        places = trees.folders(folder)
        return handed.is_there(folder / "sealed") and not any(self._is_alive(place, attempt) for place in places)

    def _user_of(self, attempt: Path) -> JobUser | None:
        """Return the user of an attempt.

        If a previous release began it as our own user, it stays so: its replicas share files.
        """
        # A folder without replica.json had not been handed over when its creator died: nothing was begun in it.
        begun = (path for path in trees.folders(attempt) if handed.is_there(path / "replica.json"))
        return None if any(handed.owner(path) == os.geteuid() for path in begun) else self.user

    def prepare(self) -> None:
        """Once per process, put what the user of jobs must reach where they can.

        Raises Refused if they cannot reach it.
        """
        if self.user is None or self._is_prepared:
            return
        with self._preparing:
            if not self._is_prepared:
                self._prepare_for(self.user)

    def _prepare_for(self, user: JobUser) -> None:
        for folder in (self.root, *(self.root / name for name in ("jobs", "agent", "active"))):
            handed.passage(folder)
        for name in ("home", "cache"):
            handed.give_folder(self.root / name, user)
        self.host.agent = handed.published(self.host.agent, self.root / "agent")
        if not can_run([self.host.python, "-I", "-c", IMPORTS, self.host.agent], user):
            raise Refused(
                f"local jobs run as user {user.uid}, who cannot run {self.host.python} or reach {self.root}: put both in folders that other users may enter, "
                "or let local jobs run as root (MUSTER_JOB_USER=root)"
            )
        self._is_prepared = True

    # -- one replica

    def _spawn(self, place: Path, config: dict[str, Any], token: str, *, user: JobUser | None) -> None:
        _given(place, user)
        handed.write(place / "token", token)
        handed.write(place / "replica.json", json.dumps(config, indent=1))
        with faultpoints.around("local.spawn"):
            handed.write(handed.own_note(place, "spawned.json"), self.host.spawn(place).to_json())

    def _look(self, folder: Path, carried: str, role: str, *, index: int, incarnation: int) -> ReplicaSeen:
        """Return the newest replica's state at this place: one is begun only if nothing is left of its predecessor."""
        place = folder / place_name(role, index, incarnation)
        if _identity(place) is None:
            return ReplicaSeen(role, index, ReplicaState.ABSENT)
        has_agent = self._has_agent(place)
        status = _status(place)  # read after the liveness check: an agent writes its last status before it exits
        state = _STATES.get(str(status.get("state")), ReplicaState.PENDING)
        reason = str(status.get("reason") or "")
        is_alive = has_agent or drain.is_owed(place, self.host, self.clock())
        if state not in ENDED and not has_agent:
            state, reason = ReplicaState.LOST, "its agent was killed or the machine restarted"
            is_alive = is_alive or bool(self.host.carriers(carried, place.name))
        end = status.get("exit_code"), status.get("signal")
        return ReplicaSeen(role, index, state, is_alive, *end, reason, incarnation=incarnation)

    def _has_agent(self, place: Path) -> bool:
        one = _identity(place)
        return one is not None and self.host.is_alive(one)

    def _is_alive(self, place: Path, carried: str) -> bool:
        """Whether the agent is alive, or it was killed and left processes or unsent lines behind."""
        one = _identity(place)
        if one is None:
            return False
        if self.host.is_alive(one) or drain.is_owed(place, self.host, self.clock()):
            return True
        if _STATES.get(str(_status(place).get("state"))) in ENDED:
            return False
        return bool(self.host.carriers(carried, place.name))

    def _end(self, place: Path, carried: str, grace_seconds: int, *, is_now: bool = False) -> None:
        one = _identity(place)
        if one is None:
            return
        asked = handed.own_note(place, "stop_asked")
        if not self.host.is_alive(one):
            self._tidy(place, carried)
            if not self._is_alive(place, carried):
                forget_secrets(place)
        elif not handed.is_there(asked):
            handed.write(asked, str(self.clock()))
            self.host.signal(one, signal.SIGTERM)
            # a stopped agent would not receive SIGTERM, and be killed after the full grace period
            self.host.signal(one, signal.SIGCONT)
        elif is_now:
            self._hurry(place, carried, one)
        elif self.clock() > _asked_at(asked) + grace_seconds + DRAIN_SECONDS + 15:
            self.host.signal(one, signal.SIGKILL)
            self.host.kill_carriers(carried, place.name)

    def _hurry(self, place: Path, carried: str, one: Identity) -> None:
        """Drop the grace period with a second SIGTERM (docs/wire.md, section 1).

        It is sent every time: two that arrive together count as one. An agent that does not obey is killed soon; one
        that has ended its replica may go on sending the rest.
        """
        asked = handed.own_note(place, "stop_now")
        if not handed.is_there(asked):
            handed.write(asked, str(self.clock()))
        is_over = _STATES.get(str(_status(place).get("state"))) in ENDED
        if self.clock() > _asked_at(asked) + (DRAIN_SECONDS + 15 if is_over else NOW_SECONDS):
            self.host.signal(one, signal.SIGKILL)
            self.host.kill_carriers(carried, place.name)
        else:
            self.host.signal(one, signal.SIGTERM)
            self.host.signal(one, signal.SIGCONT)

    def _tidy(self, place: Path, carried: str) -> None:
        """Clean up after an agent that is gone: first the processes it left, then its unsent lines."""
        # Whatever its status says: a job can write that, and kill its agent.
        if not self.host.kill_carriers(carried, place.name):
            drain.start(place, self.host, self.clock())

    def _forget_old_secrets(self) -> None:
        """Remove secrets of attempts that ended in releases where ended replicas did not remove them themselves."""
        attempts = (attempt for run in trees.folders(self.root / "jobs") for attempt in trees.folders(run))
        for attempt in attempts:
            is_attempt = attempt.name.isdecimal()  # else a job's own folder
            if not is_attempt or not handed.is_there(attempt / "sealed"):
                continue
            ref = AttemptRef(attempt.parent.name, int(attempt.name))
            for place in trees.folders(attempt):
                is_left = handed.is_there(place / "token") and not self._active(ref).exists()
                if is_left and not self._is_alive(place, mark(ref.run, ref.number)):
                    forget_secrets(place)

    # -- files

    def _attempt(self, ref: AttemptRef) -> Path:
        return self.root / "jobs" / ref.run / str(ref.number)

    def _active(self, ref: AttemptRef) -> Path:
        folder = self.root / "active"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / mark(ref.run, ref.number)

    def _open_attempts(self) -> list[str]:
        try:
            return os.listdir(self.root / "active")
        except FileNotFoundError:
            return []

    def _fingerprint(self, name: str) -> object:
        folder = self._attempt(_named(name))
        places = [place for place in trees.folders(folder) if handed.is_there(place / "replica.json")]
        return tuple((place.name, _status(place).get("state"), self._is_alive(place, name)) for place in places)

    def _ports(self, folder: Path, plan: Plan) -> dict[str, int]:
        """Return the attempt's ports, chosen once.

        The replica that will listen holds its port until the launcher binds it.
        """
        kept = folder / "ports.json"
        if kept.exists():
            return dict(json.loads(kept.read_text()))
        ports = {name: _free_port() for name in ports_needed(plan)}
        handed.write(kept, json.dumps(ports))
        return ports

    @contextlib.contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """Hold the lock that guards every spawn: by this call, by the agent's launcher, and by sealing."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.user:
            for passed in (folder.parent, folder):
                handed.passage(passed)
        with open(folder / "lock", "ab") as lock:
            if self.user:  # its agents take it too
                os.fchown(lock.fileno(), self.user.uid, self.user.gid)
            _lock_soon(lock.fileno())
            yield


def _named(name: str) -> AttemptRef:
    """Return the attempt of this name, which is that of its mark."""
    run, _, number = name.rpartition("-")
    return AttemptRef(run, int(number))


def _given(folder: Path, user: JobUser | None) -> Path:
    """Create a folder that jobs can write to."""
    if user:
        handed.give_folder(folder, user)
    else:
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _lock_soon(lock: int) -> None:
    """Take the lock. Raises Unreachable after LOCK_SECONDS.

    A holder needs milliseconds; a process that was stopped while it holds the lock must not block us.
    """
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise Unreachable(f"another process held the attempt's lock for {LOCK_SECONDS:g} s") from None
        time.sleep(0.01)


def forget_secrets(place: Path) -> None:
    """Remove the secrets of a replica that ended and sent everything: its environment, files of secrets, and its token.

    The token goes last, so that at a start its presence shows that work is left. A job may have removed it, which
    changes nothing.
    """
    with contextlib.suppress(*handed.UNREADABLE, OSError):
        config = json.loads(handed.read(place / "replica.json"))
        if config["env"]:  # never empty before
            handed.write(place / "replica.json", json.dumps({**config, "env": {}, "secret_files": {}}, indent=1))
    handed.erase(place / SECRETS)
    with contextlib.suppress(OSError):  # a job may have made a folder of that name
        (place / "token").unlink(missing_ok=True)


def _identity(place: Path) -> Identity | None:
    """Return the replica's agent process, as noted by its spawner, or by the agent if the spawner died before that.

    The job may have written or removed any file in the replica's folder: a process of another user is not accepted as
    its agent, and so never signalled, and the spawner's note is kept beside the folder.
    """
    with contextlib.suppress(*handed.UNREADABLE):
        return Identity.from_json(handed.read(handed.own_note(place, "spawned.json")))
    for name in ("spawned.json", "agent.json"):  # the first as previous releases wrote it
        with contextlib.suppress(*handed.UNREADABLE):
            found = Identity.from_json(handed.read(place / name, most=handed.STATE_BYTES))
            if handed.may_be_of(found.pid, place):
                return found
    return None


def _asked_at(asked: Path) -> float:
    try:
        return float(handed.read(asked, most=handed.STATE_BYTES))
    except (FileNotFoundError, ValueError):
        return 0.0


def _newest(folder: Path) -> dict[str, int]:
    """Return the highest incarnation that was begun, for places whose replica was replaced."""
    with contextlib.suppress(FileNotFoundError):
        found = sorted(incarnation_of(name) for name in os.listdir(folder))
        return {name: number for name, number in found if number and _identity(folder / f"{name}.{number}")}
    return {}


def _status(place: Path) -> dict[str, Any]:
    return _read_json(place / "status.json", most=handed.STATE_BYTES)


def _read_json(path: Path, *, most: int | None = None) -> dict[str, Any]:
    with contextlib.suppress(*handed.UNREADABLE):
        return dict(json.loads(handed.read(path, most=most)))
    return {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
