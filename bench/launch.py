"""1,000 replicas of 8 GPUs on 1,000 fake nodes, against the raw limit of the API server and an Indexed Job.

The probe sends the same bodies in parallel and does nothing else; it runs before and after, and its mean counts. Two
passes: with the request limits that Kubernetes ships (controllers 20/s, scheduler 50/s), and with these lifted.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from agent.build import build
from controlplane.errors import Unreachable
from jobs.clusters import kube_http, manifests
from jobs.clusters.kube_http import CONNECTIONS, Api
from jobs.clusters.kube_options import Access
from jobs.clusters.kube_site import Site
from jobs.clusters.kubernetes import KubernetesCluster
from jobs.plan import Host, Index, Plan, Port, Role
from tests.cluster.rig.plane import ControlPlane
from tests.cluster.rig.world import NAMESPACE, fill

from .figures import Figure, Result

REPLICAS = NODES = int(os.environ.get("MUSTER_BENCH_REPLICAS", "1000"))  # fewer on a small machine
TOLERATIONS = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Launch:
    """Seconds: until the last creation was answered, and until an independent watch saw all Running."""

    created: float
    running: float
    cpu: float = 0.0
    requests: int = 0


def run() -> Result:
    figures, notes = [], {"replicas": REPLICAS, "nodes": NODES}
    for has_lifted_limits in (False, True):
        limits = "lifted" if has_lifted_limits else "shipped"
        found = _pass(has_lifted_limits=has_lifted_limits)
        probe = [found["probe before"], found["probe after"]]
        muster = found["muster"]
        mean = statistics.mean(one.created for one in probe)
        figures += [
            Figure(f"creating, {limits} limits", muster.created, "s", 1 / 0.9, reference=mean, bound_on="ratio"),
            Figure(f"CPU per pod, {limits} limits", muster.cpu * 1000 / REPLICAS, "ms", 1.5),
            Figure(f"mutating requests per pod, {limits} limits", muster.requests / REPLICAS, "", 1.05),
        ]
        if "indexed job" in found:
            job = found["indexed job"]
            figures.append(Figure("all running", muster.running, "s", 1 / 2.4, reference=job.running, bound_on="ratio"))
        notes[limits] = {name: {"created": round(one.created, 2), "running": round(one.running, 2)} for name, one in found.items()}  # fmt: skip
    return Result("launch", figures, notes)


def _pass(*, has_lifted_limits: bool) -> dict[str, Launch]:
    plane = ControlPlane(has_lifted_limits=has_lifted_limits, silent_node_seconds=900)
    plane.start()
    try:
        kubeconfig = fill(plane, nodes=NODES)
        with plane.client() as admin:
            _until(lambda: _ready_nodes(admin) == NODES)
            bench = Bench(plane, kubeconfig, admin)
            found = {
                "probe before": bench.probe("before"),
                "muster": bench.muster(),
                "probe after": bench.probe("after"),
            }
            if not has_lifted_limits:
                found["indexed job"] = bench.indexed_job()
            return found
    finally:
        plane.stop()


@dataclass
class Bench:
    plane: ControlPlane
    kubeconfig: Path
    admin: httpx.Client

    def muster(self) -> Launch:
        cluster = KubernetesCluster(
            agent=build(self.plane.folder / "agent.pyz"), KUBECONFIG=str(self.kubeconfig), NAMESPACE=NAMESPACE,
            IMAGE="x:1", CONTROL_URL="http://muster.test", TOLERATIONS=TOLERATIONS,
        )  # fmt: skip
        plan = _plan("1-muster")
        expected = [(role.name, index) for role, index in plan.replicas()]
        cluster.observe(plan.run, 1, expected)  # as every visit does before it creates
        eye, cpu, requests = self._eye(), _loop_seconds(), cluster.api.requests
        began = time.time()
        _apply(cluster, plan)
        created = time.time() - began
        spent, sent = _loop_seconds() - cpu, cluster.api.requests - requests
        running = _seen(eye) - began
        cluster.close()
        self._clear()
        return Launch(created, running, spent, sent)

    def probe(self, name: str) -> Launch:
        """The same bodies without an owner, so that nothing collects them."""
        plan = _plan("2-probe" + name)
        site = Site(NAMESPACE, "x:1", "http://muster.test", tolerations=tuple(TOLERATIONS))
        bodies = []
        for role, index in plan.replicas():
            body = manifests.pod(plan, role, index, site=site, owner="none", agent="none")
            del body["metadata"]["ownerReferences"]
            bodies.append(json.dumps(body).encode())
        eye = self._eye()
        began = time.time()
        created = asyncio.run(_post(str(self.kubeconfig), bodies)) - began
        running = _seen(eye) - began
        self._clear()
        return Launch(created, running)

    def indexed_job(self) -> Launch:
        plan = _plan("3-job")
        site = Site(NAMESPACE, "x:1", "http://muster.test", tolerations=tuple(TOLERATIONS))
        pod = manifests.pod(plan, plan.roles[0], 0, site=site, owner="none", agent="none")
        spec = {name: value for name, value in pod["spec"].items() if name not in ("hostname", "subdomain")}
        job = {
            "metadata": {"name": "reference"},
            "spec": {
                "completions": REPLICAS, "parallelism": REPLICAS, "completionMode": "Indexed",
                "template": {"spec": spec},
            },
        }  # fmt: skip
        eye = self._eye()
        began = time.time()
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        assert self.admin.post(path, json=job).status_code == 201
        running = _seen(eye) - began
        self.admin.request("DELETE", f"{path}/reference", json={"propagationPolicy": "Background"})
        self._clear()
        return Launch(running, running)

    def _eye(self) -> "subprocess.Popen[str]":
        words = [sys.executable, "-m", "bench.running", str(self.kubeconfig), NAMESPACE, str(REPLICAS)]
        eye = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert eye.stdout is not None
        assert eye.stdout.readline().strip() == "ready"
        return eye

    def _clear(self) -> None:
        self.admin.delete(PODS, timeout=120)
        _until(lambda: self.admin.get(PODS, params={"limit": 1}).json()["items"] == [])
        time.sleep(3)  # controllers look at what went; the next measurement begins in quiet


def _plan(run: str) -> Plan:
    env = {"PET_NODE_RANK": Index(), "PET_MASTER_ADDR": Host("worker", 0), "PET_MASTER_PORT": Port("rendezvous", 29500)}
    role = Role("worker", REPLICAS, 8, ("torchrun", "train.py"), env)
    tokens = {f"worker-{index}": f"a token of the usual length {index}" * 5 for index in range(REPLICAS)}
    return Plan(run, 1, (role,), secrets=tokens, resource="gpu")


def _apply(cluster: KubernetesCluster, plan: Plan) -> None:
    """As visits do it: one that ran out of time is followed by the next."""
    while True:
        try:
            return cluster.apply(plan)
        except Unreachable as error:
            print(f"again: {error}", file=sys.stderr)


async def _post(kubeconfig: str, bodies: list[bytes]) -> float:
    """Raw aiohttp at full width. Returns when the last one was answered."""
    api = Api(Access(kubeconfig))
    line = await api._ready()
    width = asyncio.Semaphore(CONNECTIONS)

    async def one(body: bytes) -> None:
        async with width, line.session.post(PODS[1:], data=body, headers=line.headers) as answer:
            await answer.read()
            assert answer.status == 201, await answer.text()

    await asyncio.gather(*map(one, bodies))
    done = time.time()
    await api.close()
    return done


def _loop_seconds() -> float:
    """CPU that the adapter's own thread has used, its watch included."""

    async def spent() -> float:
        return time.thread_time()

    return kube_http.run(spent(), 30)


def _seen(eye: "subprocess.Popen[str]") -> float:
    assert eye.stdout is not None
    at = float(json.loads(eye.stdout.readline())["at"])
    eye.wait(30)
    return at


def _ready_nodes(admin: httpx.Client) -> int:
    nodes = admin.get("/api/v1/nodes", params={"resourceVersion": "0"}).json()["items"]
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", [])) for n in nodes
    )


def _until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not what():
        assert time.monotonic() < end, "the rig did not come to rest"
        time.sleep(0.5)
