"""A cluster of fake nodes for a benchmark, a whole installation that uses it, and what both are compared with."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
from muster.jobs.models import Job

from jobs.clusters.kubernetes.api.client import JSON
from jobs.clusters.kubernetes.api.session import CONNECTIONS, open_session
from jobs.clusters.kubernetes.build import labels, manifests
from jobs.clusters.kubernetes.build.options import ApiAccess
from jobs.clusters.kubernetes.build.site import Site
from jobs.core.plan import Host, Index, Plan, Port, Role
from queues.shape import ReplicaShape
from rig.plane import ControlPlane
from rig.world import NAMESPACE, fill, username

from . import audit
from .rig import Rig, rig

REPLICAS = int(os.environ.get("MUSTER_BENCH_REPLICAS", "1000"))  # fewer while one works on it
GPUS = 8
TOLERATIONS = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
USER = username(NAMESPACE)
PATIENCE_SECONDS = 600.0


@dataclass
class Bench:
    plane: ControlPlane
    kubeconfig: Path
    admin: httpx.Client
    eyes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def eye(self, until: str) -> "Eye":
        """An independent watch that says when all pods are `running` or `gone`."""
        words = [sys.executable, "-m", "bench.running", str(self.kubeconfig), NAMESPACE, str(REPLICAS), until]
        return Eye(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))

    def place(self) -> int:
        """Where the audit log ends now."""
        return self.plane.audit_log.stat().st_size if self.plane.audit_log.exists() else 0

    def asked(self, place: int) -> list[audit.AuditedRequest]:
        return audit.since(self.plane.audit_log, place)

    def create(self, name: str, *, scheduler: str = "") -> tuple[float, float]:
        """The raw limit: the same bodies in parallel, and nothing else. Returns when it began, and its CPU seconds."""
        bodies = [json.dumps(pod).encode() for pod in raw_pods(name, scheduler=scheduler)]
        began, spent = time.time(), time.process_time()
        asyncio.run(_post(str(self.kubeconfig), bodies))
        return began, time.process_time() - spent

    def clear(self) -> None:
        self.admin.delete(PODS, timeout=120)
        until(lambda: self.admin.get(PODS, params={"limit": 1}).json()["items"] == [])
        time.sleep(3)  # controllers look at what went; the next measurement begins in quiet


class Eye:
    def __init__(self, process: "subprocess.Popen[str]"):
        self._process = process
        assert self._line() == "ready"

    def at(self) -> float:
        """Seconds since the epoch. Waits for it."""
        found = float(json.loads(self._line())["at"])
        self._process.wait(30)
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def bench(*, has_lifted_limits: bool, nodes: int = REPLICAS) -> Iterator[Bench]:
    plane = ControlPlane(has_lifted_limits=has_lifted_limits, silent_node_seconds=900, audits=[USER])
    plane.start()
    try:
        kubeconfig = fill(plane, nodes=nodes)
        with plane.client() as admin:
            until(lambda: ready_nodes(admin) == nodes)
            yield Bench(plane, kubeconfig, admin)
    finally:
        plane.stop()


@contextlib.contextmanager
def installation(there: Bench, folder: Path, **options: Any) -> Iterator[Rig]:
    """Web, tasks, beat and watcher, with this cluster and a queue that has all of it."""
    settings = {
        "KUBECONFIG": str(there.kubeconfig), "NAMESPACE": NAMESPACE, "IMAGE": "x:1",
        "CONTROL_URL": "http://muster.test", "TOLERATIONS": TOLERATIONS, **options,
    }  # fmt: skip
    backend = {"BACKEND": "jobs.clusters.kubernetes.KubernetesCluster", "OPTIONS": settings}
    with rig(folder, environ={"MUSTER_CLUSTERS": json.dumps({"gpus": backend})}) as muster, heard(muster):
        slots = str(REPLICAS * GPUS)
        muster.manage("queue", "gpus", "--team", "demo", "--slots", slots, "--cluster", "gpus", "--resource", "gpu")
        yield muster


@contextlib.contextmanager
def heard(muster: Rig) -> Iterator[None]:
    """Fake pods have no agents. Their rows say that they were heard from, as those of any job that goes well: what is silent
    for 15 s has its container's log read, which is another benchmark's business, and so has what was never heard when it is
    deleted: `delete` waits for longer than a round takes here."""
    stop = threading.Event()

    def speak() -> None:
        with psycopg.connect(muster.env["DATABASE_URL"], autocommit=True) as database:
            while not stop.wait(1.0):
                database.execute(
                    "UPDATE jobs_replica SET last_batch_at = now() WHERE state = 'running'"
                    " AND (last_batch_at IS NULL OR last_batch_at < now() - interval '30 seconds')"
                )

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def submit(muster: Rig, **fields: Any) -> Job:
    asked = {"nodes": REPLICAS, "nproc_per_node": GPUS, "start_timeout_seconds": 3600, **fields}
    return muster.client.submit(["torchrun", "train.py"], queue="gpus", directory=None, **asked)


def warm(muster: Rig) -> None:
    """One small job: what the first launch of a process loads and connects is no launch."""
    job = submit(muster, nodes=1)
    until_phase(muster, job.id, "running")
    muster.client.cancel(job.id)
    until_phase(muster, job.id, "cancelled")


def steps(muster: Rig, job: int, *, began: float) -> dict[str, float]:
    """Seconds from `began` to each phase, for a profile in the notes."""
    found = [(event.phase, event.at) for event in muster.client.events(job) if event.kind == "step"]
    return {phase: round(_epoch(at) - began, 2) for phase, at in found}


def _epoch(at: Any) -> float:
    return float(at.timestamp()) if isinstance(at, datetime) else datetime.fromisoformat(str(at)).timestamp()


def until_phase(muster: Rig, job: int, *phases: str) -> None:
    until(lambda: muster.client.job(job).phase in phases, every=1.0)


def lists(asked: list[audit.AuditedRequest]) -> int:
    return audit.lists_of_a_job(asked, attempt_label=labels.ATTEMPT.replace("/", "%2F"))


def raw_pods(run: str, *, scheduler: str = "") -> list[dict[str, Any]]:
    """Bodies as Muster sends them, without an owner, so that nothing collects them."""
    shape = ReplicaShape(image="x:1", pull_policy="IfNotPresent", tolerations=tuple(TOLERATIONS), scheduler=scheduler)
    site = Site(NAMESPACE, "http://muster.test", shape)
    described = plan(run)
    bodies = [
        manifests.pod(described, role, index, site=site, owner="none", agent="none")
        for role, index in described.replicas()
    ]
    for body in bodies:
        del body["metadata"]["ownerReferences"]
    return bodies


def plan(run: str) -> Plan:
    env = {"PET_NODE_RANK": Index(), "PET_MASTER_ADDR": Host("worker", 0), "PET_MASTER_PORT": Port("rendezvous", 29500)}
    role = Role("worker", REPLICAS, GPUS, ("torchrun", "train.py"), env)
    return Plan(run, 1, (role,), resource="gpu")


def pod_spec() -> dict[str, Any]:
    """For who makes pods of a template."""
    spec = raw_pods("3-job")[0]["spec"]
    return {name: value for name, value in spec.items() if name not in ("hostname", "subdomain")}


def ready_nodes(admin: httpx.Client) -> int:
    nodes = admin.get("/api/v1/nodes", params={"resourceVersion": "0"}).json()["items"]
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", [])) for n in nodes
    )


def until(what: Callable[[], bool], *, every: float = 0.5) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(every)


def load() -> float:
    """Of this machine, beside each figure: others may use it."""
    return round(os.getloadavg()[0], 1)


async def _post(kubeconfig: str, bodies: list[bytes]) -> None:
    """Raw aiohttp at full width. Returns when the last one was answered."""
    session = await open_session(ApiAccess(kubeconfig))
    headers = {"Accept": JSON, "Content-Type": JSON, **await session.credentials()}
    width = asyncio.Semaphore(CONNECTIONS)

    async def one(body: bytes) -> None:
        async with width, session.http.post(PODS[1:], data=body, headers=headers) as answer:
            await answer.read()
            assert answer.status == 201, await answer.text()

    await asyncio.gather(*map(one, bodies))
    await session.close()
