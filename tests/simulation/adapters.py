"""The two adapters as the simulated world drives them: the memory cluster, and the local one over real files with
simulated agents (spawn, sealed, status: docs/wire.md, section 1).
"""

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jobs.clusters.local.adapter import LocalCluster
from jobs.clusters.local.host import Identity
from jobs.clusters.memory import MemoryCluster
from jobs.clusters.replica_file import incarnation_of
from jobs.core.attempt_ref import AttemptRef
from tests.simulation.world import RUN, World


class MemoryWorld:
    """Replicas of the memory cluster, moved by the world's random generator."""

    def __init__(self, adapter: MemoryCluster):
        self.adapter = adapter

    def alive(self, world: World) -> list[tuple[int, str, int]]:
        return self.adapter.alive(RUN)

    def move(self, world: World) -> None:
        living = self.alive(world)
        if living:
            attempt, role, index = world.victim(living)
            code = world.ending()
            if code is None:
                self.adapter.lose(RUN, attempt, role, index=index)
            else:
                self.adapter.finish(RUN, attempt, role, index=index, exit_code=code)

    def finish_all(self, world: World) -> None:
        for attempt, role, index in self.alive(world):
            self.adapter.finish(RUN, attempt, role, index=index)


class UnsealedMemoryCluster(MemoryCluster):
    """The memory cluster without the seal: an attempt can be created again after it was closed."""

    def delete(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        super().delete(ref, grace_seconds, is_now=is_now)
        self._attempts[ref].is_sealed = False


def memory(world: World) -> MemoryCluster:
    kind = MemoryCluster if "seal" in world.guards else UnsealedMemoryCluster
    cluster = kind(lambda: world.seconds, start_seconds=0.5, run_seconds=1e9, stop_seconds=1.0)
    cluster.world = MemoryWorld(cluster)  # type: ignore[attr-defined]
    return cluster


@dataclass
class _Agent:
    """One simulated agent: alive until it ends; it trains once it has checked the seal."""

    place: Path
    is_alive: bool = True
    is_training: bool = False


class PlayedHost:
    """Simulated processes of the local cluster. An agent starts training only at a later move, as real ones do."""

    def __init__(self, is_sealing: bool = True):
        self.agents: dict[int, _Agent] = {}
        self.is_sealing = is_sealing

    def spawn(self, folder: Path) -> Identity:
        pid = len(self.agents) + 100
        self.agents[pid] = _Agent(folder)
        return Identity(pid, pid, "boot")

    def is_alive(self, one: Identity) -> bool:
        return self.agents[one.pid].is_alive

    def signal(self, one: Identity, number: int) -> None:
        self.end(self.agents[one.pid], code=None)

    def carriers(self, mark: str, replica: str) -> list[int]:
        return []

    def kill_carriers(self, mark: str, replica: str) -> int:
        return 0

    def start(self, agent: _Agent) -> None:
        """The agent's first step, under the attempt's lock: check for the seal and for an earlier end."""
        if (self.is_sealing and (agent.place.parent / "sealed").exists()) or (agent.place / "status.json").exists():
            agent.is_alive = False
        else:
            self._say(agent, "running", None)
            agent.is_training = True

    def end(self, agent: _Agent, code: int | None) -> None:
        if agent.is_alive:
            if agent.is_training:
                self._say(agent, "succeeded" if code == 0 else "failed", code)
            agent.is_alive = agent.is_training = False

    def kill(self, agent: _Agent) -> None:
        """The agent ends without a report, as by SIGKILL."""
        agent.is_alive = agent.is_training = False

    def _say(self, agent: _Agent, state: str, code: int | None) -> None:
        (agent.place / "status.json").write_text(json.dumps({"state": state, "exit_code": code}))


class LocalWorld:
    def __init__(self, host: PlayedHost, root: Path):
        self.host, self.root = host, root

    def alive(self, world: World) -> list[tuple[int, str, int]]:
        """Only training agents: one that has not checked the seal yet does no harm."""
        return [
            (int(agent.place.parent.name), *incarnation_of(agent.place.name)[0].rsplit("-", 1))
            for agent in self.host.agents.values()
            if agent.is_alive and agent.is_training
        ]  # type: ignore[misc]

    def move(self, world: World) -> None:
        living = [agent for agent in self.host.agents.values() if agent.is_alive]
        if living:
            agent, _ = world.victim([(one, one.place.name.partition(".")[0][-1]) for one in living])
            if not agent.is_training:
                self.host.start(agent)
            else:
                code = world.ending()
                self.host.end(agent, code) if code is not None else self.host.kill(agent)

    def finish_all(self, world: World) -> None:
        for agent in list(self.host.agents.values()):
            if agent.is_alive and not agent.is_training:
                self.host.start(agent)
            elif agent.is_alive:
                self.host.end(agent, 0)

    def close(self) -> None:
        shutil.rmtree(self.root)


class UnsealedLocalCluster(LocalCluster):
    def delete(self, ref: AttemptRef, grace_seconds: int, *, is_now: bool = False) -> None:
        super().delete(ref, grace_seconds, is_now=is_now)
        (self._attempt(ref) / "sealed").unlink()


def local(world: World) -> LocalCluster:
    """Files are kept in memory, since thousands of schedules would wear the disk needlessly."""
    root = Path(tempfile.mkdtemp(prefix="muster-sim-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    host = PlayedHost("seal" in world.guards)
    kind = LocalCluster if "seal" in world.guards else UnsealedLocalCluster
    cluster = kind(str(root), host=host, clock=lambda: world.seconds)  # type: ignore[arg-type]
    cluster.world = LocalWorld(host, root)  # type: ignore[attr-defined]
    return cluster
