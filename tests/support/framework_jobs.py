"""A small job of each framework, and what has to hold of it wherever it runs: the contract of a framework.

Every replica of a job prints the same few lines. Then what decides the job's end says that it waits, until
the file `go` is in the job's own folder.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

LINES = 3
UP = "waiting for the file go"  # no word that the frameworks themselves may print
_COMMON = f"""
import os, sys, time
def say():
    for number in range({LINES}):
        print(os.environ["MUSTER_REPLICA"], "says", number, flush=True)
def wait():
    print("{UP}", flush=True)
    while not os.path.exists(os.path.join(os.environ["MUSTER_SHARED"], "go")):
        time.sleep(0.05)
"""
_ALONE = """
say()
if os.environ["MUSTER_REPLICA"].startswith("helper"):
    time.sleep(3600)
wait()
"""
_RAY = """
import ray
ray.init()
@ray.remote(num_cpus=1)
class Sayer:
    def say(self):
        say()
sayers = [Sayer.remote() for _ in range(int(sys.argv[1]))]
ray.get([one.say.remote() for one in sayers])
say()
wait()
"""
_MONARCH = """
from monarch.actor import Actor, endpoint
from monarch.job.kubernetes import KubernetesJob
class Sayer(Actor):
    @endpoint
    def say(self):
        say()
try:
    with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace") as file:
        namespace = file.read()
except OSError:
    namespace = "anywhere"
job = KubernetesJob(namespace=namespace)
job.add_mesh("sayers", int(sys.argv[1]))
hosts = job.state(cached_path=None).sayers
hosts.spawn_procs({"gpus": 1}).spawn("workers", Sayer).say.call().get()
say()
wait()
"""


@dataclass(frozen=True)
class Case:
    script: str
    command: Callable[[int], list[str]]  # by the number of nodes
    many: str  # the role that has a replica for each node
    alone: str = ""  # the one replica beside them, if there is one
    fields: dict[str, Any] = field(default_factory=dict)

    def replicas(self, nodes: int) -> list[str]:
        """The names of all replicas of a job on so many nodes."""
        return [*(f"{self.many}-{index}" for index in range(nodes)), *([self.alone] if self.alone else [])]


CASES = {
    "plain": Case(
        _COMMON + _ALONE, lambda nodes: ["python3", "train.py"], "worker", "helper-0",
        {"helper_command": ["python3", "train.py"]},
    ),
    "torchrun": Case(_COMMON + _ALONE, lambda nodes: ["torchrun", "train.py"], "worker"),
    "ray": Case(_COMMON + _RAY, lambda nodes: ["python3", "train.py", str(nodes)], "worker", "head-0"),
    "monarch": Case(
        _COMMON + _MONARCH, lambda nodes: ["python3", "train.py", str(nodes)], "sayers", "controller-0",
        {"mesh_name": "sayers"},
    ),
}  # fmt: skip
EVERY_REPLICA = [(name, replica) for name, case in CASES.items() for replica in case.replicas(1)]
EVERY_REPLICA += [("torchrun", "worker-1")]  # its role's first replica has the store of the rendezvous


class World(Protocol):
    """What the checks need of an installation."""

    client: Any

    def submit(self, script: str, **asked: Any) -> Any: ...
    def until_phase(self, job: Any, *phases: str) -> Any: ...
    def until(self, job: Any, what: Callable[[Any], bool]) -> Any: ...
    def text(self, job: Any) -> list[str]: ...
    def shared(self, job: Any) -> Path: ...
    def kill(self, job: Any, replica: str) -> None: ...
    def left(self, job: Any) -> list[Any]: ...


def start(world: World, name: str, *, nodes: int = 2) -> Any:
    """Submit the framework's job and return it once every replica has printed its lines."""
    case = CASES[name]
    job = world.submit(
        case.script, command=case.command(nodes), framework=name, nodes=nodes, nproc_per_node=1, fields=case.fields
    )
    _until_all_have_said(world, name, job, nodes=nodes, attempt=1)
    return job


def _until_all_have_said(world: World, name: str, job: Any, *, nodes: int, attempt: int) -> None:
    """Nothing else lets the first replica wait for the others: a worker that ends stops a helper that has not begun."""
    awaited = {UP, *(f"{replica} says {LINES - 1}" for replica in CASES[name].replicas(nodes))}

    def have_said(now: Any) -> bool:
        assert now.phase not in ("failed", "succeeded", "cancelled"), (now.message, world.text(job))
        return now.attempt == attempt and awaited <= {line.text for line in world.client.logs(job.id, attempt=attempt)}

    world.until(job, have_said)


def finish(world: World, job: Any) -> None:
    """Let the job go on to its end, which has to be a good one that leaves nothing behind."""
    (world.shared(job) / "go").touch()
    ended = world.until_phase(job, "succeeded", "failed", "cancelled")
    assert ended.phase == "succeeded", (ended.message, world.text(job))
    assert world.left(job) == []


def says_each_line_once(world: World, name: str) -> None:
    job = start(world, name)
    finish(world, job)
    _has_each_line_once(world, name, job, attempt=1)


def goes_on_after_a_suspension(world: World, name: str) -> None:
    job = start(world, name)
    world.client.suspend(job.id)
    world.until_phase(job, "suspended", "failed")
    assert world.left(job) == []
    world.client.resume(job.id)
    _until_all_have_said(world, name, job, nodes=2, attempt=2)
    finish(world, job)
    for attempt in (1, 2):
        _has_each_line_once(world, name, job, attempt=attempt)


def names_the_replica_that_was_killed(world: World, name: str, replica: str) -> None:
    job = start(world, name)
    world.kill(job, replica)
    ended = world.until_phase(job, "failed", "succeeded")
    assert ended.phase == "failed" and replica in ended.message, (ended.message, world.text(job))
    assert ended.first_failure.replica == replica, ended.first_failure
    assert world.left(job) == []


def _has_each_line_once(world: World, name: str, job: Any, *, attempt: int) -> None:
    replicas = CASES[name].replicas(2)
    for replica in replicas:
        said = [line.text for line in world.client.logs(job.id, replica=replica, attempt=attempt)]
        assert [text for text in said if " says " in text] == [f"{replica} says {number}" for number in range(LINES)]
    everybody = [line.text for line in world.client.logs(job.id, attempt=attempt)]
    assert sum(" says " in text for text in everybody) == LINES * len(replicas)
