"""A whole installation whose queues use a cluster with a real node: control plane, kubelet, containers, and Muster beside it."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.rig import Rig
from embedded.installation import Installation
from embedded.ports import free_port
from rig import programs
from rig.lending import lend, raised
from rig.node import Node, why_not
from rig.plane import ControlPlane
from rig.world import NAMESPACE
from tests.cluster.conftest import need_rig
from tests.cluster.node.gate import Gate
from tests.support.machine import need

ROOT = Path(__file__).resolve().parents[3]
QUEUES = (
    "pods",
    "small",
    "nowhere",
    "gated",
    "walled",
)  # each on a cluster of the same name: this node with different options
# What a framework on real pods depends on, beside what tests/unit/clusters has without any.
GUARDS = ("agent", "jobs/frameworks", "jobs/clusters/kubernetes", "jobs/clusters/replica_file.py", "rig")
SECONDS = 900.0  # generous: several interpreters import torch on two busy cores


@dataclass(frozen=True)
class RealRun:
    rig: Rig
    gate: Gate  # in front of the control plane, for agents of the cluster `gated`
    marks: Path  # folder in which fault points are armed (common/faultpoints.py)
    plane: ControlPlane
    node: Node


class Pods:
    """Actions on jobs on real pods: of a user, of the cluster's administrator, and faults."""

    def __init__(self, world: RealRun, folder: Path, admin: httpx.Client):
        self.rig, self.node, self.client = world.rig, world.node, world.rig.client
        self.folder, self.admin = folder, admin
        self.gate, self.marks = world.gate, world.marks

    def submit(
        self, script: str, *, queue: str = "pods", command: Sequence[str] = ("torchrun", "train.py"), **asked: Any
    ):
        (self.folder / "train.py").write_text(script)
        asked = {"nodes": 1, "nproc_per_node": 1, "directory": self.folder, **asked}
        return self.client.submit(list(command), queue=queue, volumes=["packages"], **asked)

    def digits(self, *words: str, **asked: Any):
        asked = {"nodes": 2, "nproc_per_node": 2, "directory": ROOT / "examples", **asked}
        return self.client.submit(["torchrun", "ddp_digits.py", *words], queue="pods", volumes=["packages"], **asked)

    def in_image(self, statement: str, *, queue: str, **asked: Any):
        """A job without code of its own: torchrun runs a module of the image, which executes the statement."""
        command = ["torchrun", "-m", "timeit", "-n", "1", "-r", "1", statement]
        return self.client.submit(command, queue=queue, directory=None, volumes=["packages"], **asked)

    def shared(self, job) -> Path:
        return self.node.jobs / self.run(job)

    def until(self, job, what: Callable[[Any], bool], seconds: float = SECONDS):
        end = time.monotonic() + seconds
        while not what(now := self.client.job(job.id)):
            assert time.monotonic() < end, (now.phase, now.message, self.text(job)[-20:], self.states())
            time.sleep(0.3)
        return now

    def until_phase(self, job, *phases: str):
        return self.until(job, lambda now: now.phase in phases)

    def until_line(self, job, words: str, *, times: int = 1):
        return self.until(job, lambda _: sum(words in line for line in self.text(job)) >= times)

    def text(self, job) -> list[str]:
        return [line.text for line in self.client.logs(job.id)]

    def everything(self, kind: str = "pods") -> list[dict[str, Any]]:
        return list(self.admin.get(f"/api/v1/namespaces/{NAMESPACE}/{kind}").json()["items"])

    def of(self, job, kind: str = "pods") -> list[dict[str, Any]]:
        """This job's objects that are not a closed attempt's tombstone, by name."""
        found = [one for one in self.everything(kind) if _run(one).startswith(f"{job.id}-")]
        return sorted((one for one in found if "muster.dev/sealed" not in one["metadata"]["labels"]), key=_name)

    def left(self, job) -> list[dict[str, Any]]:
        return self.of(job)

    def kill(self, job, replica: str) -> None:
        """Delete a replica's pod without any time to end."""
        (name,) = [name for one in self.of(job) if (name := _name(one)).endswith(f"-{replica}")]
        self.remove("pods", name, grace_seconds=0)

    def run(self, job) -> str:
        """The job's run, after which its objects and its folder are named."""
        return next(_run(one) for one in self.everything("services") if _run(one).startswith(f"{job.id}-"))

    def checkpoints(self, job) -> list[str]:
        return sorted(path.name for path in (self.node.jobs / self.run(job) / "checkpoints").iterdir())

    def states(self) -> list[tuple[str, Any]]:
        return [(_name(one), one["status"]) for one in self.everything()]

    def remove(self, kind: str, name: str, *, grace_seconds: int | None = None) -> None:
        body = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        answer = self.admin.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/{kind}/{name}", json=body)
        assert answer.status_code in (200, 202), answer.text

    def processes(self, pod: dict[str, Any], words: str) -> list[int]:
        """The pod's processes whose command line contains these words."""
        found = []
        for pid in self.node.processes(pod["metadata"]["uid"]):
            try:
                said = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [pid] if words in said else []
        return found


def need_node() -> None:
    need_rig()
    is_built = programs.is_built(programs.NODE_SOURCES) and programs.is_built(programs.FIREWALL_SOURCES)
    need(is_built, "the node's programs are not built here; MUSTER_RIG=build bin/test builds them")
    need(not (problem := why_not()), problem)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRun]:
    need_node()
    with ExitStack() as at_the_end:
        plane, node = at_the_end.enter_context(raised(has_policies=True))
        cable = node.cable
        port, marks = free_port(cable.host), tmp_path_factory.mktemp("marks")
        gate = at_the_end.enter_context(Gate(cable.host, to=port))
        said = {
            "MUSTER_CLUSTERS": json.dumps(_clusters(plane, node, port=port, gate=gate)), "CRASH_MARKS": str(marks),
            "MUSTER_CLUSTER_NETWORKS": f"{cable.host}/32",  # where one may be added
        }  # fmt: skip
        folder = tmp_path_factory.mktemp("installation")
        installation = Installation(folder, host=cable.host, port=port, environ=said, is_temporary=True)
        rig = Rig(at_the_end.enter_context(installation))
        for name in QUEUES:
            rig.manage("queue", name, "--team", "pods", "--slots", "8", "--cluster", name, "--member", "admin")
        yield RealRun(rig, gate, marks, plane, node)


@pytest.fixture
def pods(world: RealRun, tmp_path: Path) -> Iterator[Pods]:
    with world.plane.client() as admin:
        found = Pods(world, tmp_path, admin)
        yield found
        for job in (left := list(found.client.jobs(phase="active"))):
            found.client.cancel(job.id)
        for job in left:
            found.until(job, lambda now: now.is_finished)


def _clusters(plane: ControlPlane, node: Node, *, port: int, gate: Gate) -> dict[str, Any]:
    host = node.cable.host
    options = {**lend(plane, node), "CONTROL_URL": f"http://{host}:{port}"}
    others = {
        "pods": {}, "small": {"LIMITS": {"memory": "400Mi"}},
        "nowhere": {"CONTROL_URL": f"http://{host}:1"}, "gated": {"CONTROL_URL": f"http://{host}:{gate.port}"},
        "walled": {"NETWORK_POLICY": True},
    }  # fmt: skip
    backend = "jobs.clusters.kubernetes.KubernetesCluster"
    return {name: {"BACKEND": backend, "OPTIONS": {**options, **others[name]}} for name in QUEUES}


def _name(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])


def _run(thing: dict[str, Any]) -> str:
    return str(thing["metadata"].get("labels", {}).get("muster.dev/run", ""))
