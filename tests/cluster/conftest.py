"""One control plane for the whole run; a namespace with its own account for each test."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.build import build
from common.errors import Unreachable
from jobs.clusters.kubernetes.adapter import KubernetesCluster
from jobs.clusters.kubernetes.build import labels
from jobs.core.attempt_ref import AttemptRef
from jobs.core.plan import Host, Index, Plan, Port, Role
from jobs.core.verdict import Seen
from rig import programs
from rig.elsewhere import Elsewhere
from rig.gate import Gate
from rig.plane import ControlPlane
from rig.world import abandon, fill, node, settle
from tests.support.machine import need
from tests.support.patience import until

TOLERATIONS = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
MERGE = {"Content-Type": "application/merge-patch+json"}
REF = AttemptRef("7-abc", 1)  # what `plan` launches
_numbers = count(1)


@dataclass
class NamespaceFixture:
    """A namespace of the rig: Muster's adapter in it, and the actions of an administrator."""

    plane: ControlPlane | Elsewhere
    namespace: str
    kubeconfig: Path
    agent: Path
    admin: httpx.Client
    clusters: list[KubernetesCluster] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def cluster(self, kubeconfig: Path | None = None, **options: Any) -> KubernetesCluster:
        """A new adapter, as in another process."""
        said = {
            "KUBECONFIG": str(kubeconfig or self.kubeconfig), "NAMESPACE": self.namespace, "IMAGE": "x:1",
            "CONTROL_URL": "http://muster.test", "TOLERATIONS": TOLERATIONS, **options,
        }  # fmt: skip
        made = KubernetesCluster(agent=self.agent, **said)
        self.clusters.append(made)
        return made

    def path(self, kind: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods on the API server, by name."""
        return {one["metadata"]["name"]: one for one in self.admin.get(self.path("pods")).json()["items"]}

    def annotate(self, pod: str, **said: str | None) -> None:
        """Set annotations that stages.yaml reads, such as exit_code="3" or hang="true"."""
        notes = {f"rig/{name.replace('_', '-')}": value for name, value in said.items()}
        answer = self.admin.patch(self.path("pods", pod), headers=MERGE, json={"metadata": {"annotations": notes}})
        assert answer.status_code == 200, answer.text

    def make(self, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        answer = self.admin.post(self.path(kind), json=thing)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def remove(self, kind: str, name: str) -> None:
        answer = self.admin.delete(self.path(kind, name))
        assert answer.status_code in (200, 202), answer.text

    def add_node(self, **said: Any) -> str:
        """Add a node for this test alone, to be requested with a node selector."""
        made = node(f"{self.namespace}-node-{next(_numbers)}", **said)
        answer = self.admin.post("/api/v1/nodes", json=made)
        assert answer.status_code == 201, answer.text
        self.nodes.append(made["metadata"]["name"])
        return self.nodes[-1]

    def gate(self) -> Gate:
        return Gate(self.plane)


def start_followers(plane: ControlPlane) -> None:
    """Restart the scheduler and KWOK after an outage of the API server; on their own they reconnect after half a minute."""
    for name in ("kube-scheduler", "kwok"):
        plane.processes[name].kill()
        plane.processes[name].start()


def plan(replicas: int = 2, *, attempt: int = 1, processes: int = 1, run: str = "7-abc", **changes: Any) -> Plan:
    env = {"NUMBER": Index(), "ADDRESS": Host("worker", 0), "PORT": Port("rendezvous", 29500)}
    role = Role("worker", replicas, processes, ("true",), env)
    tokens = {f"worker-{index}": f"token {index}" for index in range(replicas)}
    return Plan(run, attempt, (role,), secrets=tokens, grace_seconds=3, **changes)


def expected(replicas: int = 2) -> list[tuple[str, int]]:
    return [("worker", index) for index in range(replicas)]


def states(cluster: KubernetesCluster, replicas: int = 2, *, attempt: int = 1) -> list[str]:
    return [one.state.value for one in cluster.observe(AttemptRef("7-abc", attempt), expected(replicas)).replicas]


def launch(cluster: KubernetesCluster, asked: Plan) -> None:
    """Apply the plan, and retry if the server is too busy, as visits do."""

    def is_launched() -> bool:
        with contextlib.suppress(Unreachable):
            cluster.apply(asked)
            return True
        return False

    until(is_launched)


def run_all(cluster: KubernetesCluster, replicas: int = 2, **changes: Any) -> None:
    """Launch and wait until all run."""
    asked = plan(replicas, **changes)
    launch(cluster, asked)
    until(lambda: set(states(cluster, replicas, attempt=asked.attempt)) == {"running"})


def end(cluster: KubernetesCluster, replicas: int = 2, *, attempt: int = 1, run: str = "7-abc") -> Seen:
    """Delete the attempt until it is gone, as visits do."""

    def gone() -> Seen | None:
        with contextlib.suppress(Unreachable):
            cluster.delete(AttemptRef(run, attempt), 3)
        seen = cluster.observe(AttemptRef(run, attempt), expected(replicas))
        return seen if seen.is_sealed and not any(one.is_alive for one in seen.replicas) else None

    found = until(gone)
    assert isinstance(found, Seen)
    return found


def pod_name(index: int, attempt: int = 1) -> str:
    return labels.pod("7-abc", attempt, "worker", index)


def need_rig() -> None:
    """Building takes a quarter of an hour, so it must be requested, as CI does."""
    need(programs.is_built(), "the cluster's programs are not built here; MUSTER_RIG=build bin/test builds them")


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane | Elsewhere]:
    if named := os.environ.get("MUSTER_TEST_KUBECONFIG"):
        yield Elsewhere(named, tmp_path_factory.mktemp("elsewhere"))
        return
    need_rig()
    plane = ControlPlane()
    plane.start()
    try:
        fill(plane, nodes=20)
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("agent") / "agent.pyz")


@pytest.fixture
def place(plane: ControlPlane | Elsewhere, agent: Path) -> Iterator[NamespaceFixture]:
    namespace = f"t{os.getpid()}-{next(_numbers)}"
    kubeconfig = settle(plane, namespace)
    with plane.client() as admin:
        place = NamespaceFixture(plane, namespace, kubeconfig, agent, admin)
        yield place
        for one in place.clusters:
            one.close()
        abandon(admin, namespace)
        for one in place.nodes:
            admin.delete(f"/api/v1/nodes/{one}")


@pytest.fixture
def cluster(place: NamespaceFixture) -> KubernetesCluster:
    return place.cluster()
