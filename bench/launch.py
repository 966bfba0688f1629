"""1,000 replicas of 8 GPUs on 1,000 fake nodes: from the HTTP submit until an independent watch saw all of them run.

Beside it the raw limit of the API server (a probe sends the same bodies in parallel and does nothing else, before and after; its
mean counts), an Indexed Job and a PyTorchJob. Two passes: with the request limits that Kubernetes ships (controllers 20/s,
scheduler 50/s), and with these lifted. Requests and their times are the API server's own, from its audit log.
"""

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rig.world import NAMESPACE

from . import audit, kube, pytorchjob
from .figures import Figure, Result
from .kube import REPLICAS, Bench
from .procs import PARTS, Meter, descendants
from .rig import Rig

OURS = ("uvicorn", "celery worker", "beat", "watch")  # Muster's processes; its databases stand beside them
DATABASES = ("postgres", "redis-server")
CREATION_RATE, QUICKER = 0.9, 2.4
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


@dataclass(frozen=True)
class Launch:
    """Seconds: the creations alone, and from the beginning until all ran."""

    running: float
    created: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)  # seconds by process
    mutating: int = 0
    lists: int = 0
    load: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)

    @property
    def our_cpu(self) -> float:
        return sum(seconds for name, seconds in self.cpu.items() if name in OURS)

    def per_pod(self, *names: str) -> dict[str, float]:
        """Milliseconds by kind of process."""
        return {PARTS[name]: self.cpu.get(name, 0.0) * 1000 / REPLICAS for name in names}


def run() -> Result:
    figures: list[Figure] = []
    notes: dict[str, object] = {"replicas": REPLICAS, "nodes": REPLICAS}
    for has_lifted_limits in (False, True):
        limits = "lifted" if has_lifted_limits else "shipped"
        found = _pass(has_lifted_limits=has_lifted_limits)
        figures += _figures(limits, found)
        notes[limits] = {name: vars(one) for name, one in found.items()}
        print(f"{limits}: {notes[limits]}", file=sys.stderr, flush=True)
    return Result("launch", figures, notes)


def _figures(limits: str, found: dict[str, Launch]) -> list[Figure]:
    muster = found["muster"]
    probe = statistics.mean(found[name].created for name in ("probe before", "probe after"))
    figures = [
        Figure(f"creating, {limits} limits", muster.created, "s", 1 / CREATION_RATE, reference=probe, bound_on="ratio"),
        Figure(
            f"CPU per pod, {limits} limits",
            muster.our_cpu * 1000 / REPLICAS,
            "CPU ms",
            1.5,
            parts=muster.per_pod(*OURS),
        ),
        Figure(
            f"databases' CPU per pod, {limits} limits",
            sum(muster.per_pod(*DATABASES).values()),
            "CPU ms",
            parts=muster.per_pod(*DATABASES),
        ),
        Figure(f"mutating requests per pod, {limits} limits", muster.mutating / REPLICAS, "", 1.05),
        Figure(f"lists of the job's pods, {limits} limits", float(muster.lists), "", 0.0),
    ]
    for name in ("indexed job", "pytorchjob"):
        if name in found:
            words = f"all running, {limits} limits, beside {name}"
            figures.append(Figure(words, muster.running, "s", 1 / QUICKER, found[name].running, "ratio"))
    return figures


def _pass(*, has_lifted_limits: bool) -> dict[str, Launch]:
    with kube.bench(has_lifted_limits=has_lifted_limits) as bench:
        found = {
            "probe before": _probe(bench, "2-before"),
            "muster": _muster(bench),
            "probe after": _probe(bench, "2-after"),
        }
        if not has_lifted_limits:
            found["indexed job"] = _of_template(bench, JOBS, _indexed_job())
            with pytorchjob.operator(bench.plane, bench.admin):
                made = pytorchjob.job("reference", REPLICAS, kube.pod_spec())
                found["pytorchjob"] = _of_template(bench, pytorchjob.JOBS, made)
        return found


def _muster(bench: Bench) -> Launch:
    with (
        tempfile.TemporaryDirectory(prefix="muster-bench-") as folder,
        kube.installation(bench, Path(folder)) as muster,
    ):
        kube.warm(muster)
        found = _launch(bench, muster)
        bench.clear()
    return found


def _launch(bench: Bench, muster: Rig) -> Launch:
    eye, place, load = bench.eye("running"), bench.place(), kube.load()
    with Meter(lambda: descendants(muster.pid)) as meter:
        began = time.time()
        job = kube.submit(muster)
        running = eye.at() - began
        kube.until_phase(muster, job.id, "running")
    steps = kube.steps(muster, job.id, began=began)
    asked = bench.asked(place)
    muster.client.cancel(job.id)
    kube.until_phase(muster, job.id, "cancelled", "failed")
    return Launch(
        running, audit.creating_seconds(asked), meter.by_command(), sum(one.is_mutating for one in asked),
        kube.lists(asked), load, steps,
    )  # fmt: skip


def _probe(bench: Bench, run: str) -> Launch:
    eye, place, load = bench.eye("running"), bench.place(), kube.load()
    began = bench.create(run)
    running = eye.at() - began
    created = audit.creating_seconds(bench.asked(place))
    bench.clear()
    return Launch(running, created, load=load)


def _of_template(bench: Bench, path: str, thing: dict[str, object]) -> Launch:
    eye, load = bench.eye("running"), kube.load()
    began = time.time()
    answer = bench.admin.post(path, json=thing)
    assert answer.status_code == 201, answer.text
    running = eye.at() - began
    bench.admin.request("DELETE", f"{path}/reference", json={"propagationPolicy": "Background"})
    bench.clear()
    return Launch(running, load=load)


def _indexed_job() -> dict[str, object]:
    counts = {"completions": REPLICAS, "parallelism": REPLICAS, "completionMode": "Indexed"}
    return {"metadata": {"name": "reference"}, "spec": {**counts, "template": {"spec": kube.pod_spec()}}}
