"""1,000 replicas of 8 GPUs on 1,000 fake nodes: from the HTTP submit until an independent watch saw all of them run.

Beside it the raw limit of the API server (a probe sends the same bodies in parallel and does nothing else), an Indexed Job and a
PyTorchJob. Two passes: with the request limits that Kubernetes ships (controllers 20/s, scheduler 50/s), between two probes whose
mean counts; and with these lifted, in pairs with a probe in ABBA order, of which the median counts. Requests and their times are
the API server's own, from its audit log.
"""

import os
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
PROBE = "probe"  # the client of the raw limit
DATABASES = ("postgres", "redis-server")
CREATION_RATE, QUICKER = 0.9, 2.4
PAIRS = int(os.environ.get("MUSTER_BENCH_PAIRS", "5"))
CREATING, CPU = 1.25, 3.2  # bounds of ratios to the probe, with lifted limits
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
        return sum(seconds for name, seconds in self.cpu.items() if name in (*OURS, PROBE))

    def per_pod(self, *names: str) -> dict[str, float]:
        """Milliseconds by kind of process."""
        return {PARTS[name]: self.cpu.get(name, 0.0) * 1000 / REPLICAS for name in names}


def run() -> Result:
    figures: list[Figure] = []
    notes: dict[str, object] = {"replicas": REPLICAS, "nodes": REPLICAS}
    if os.environ.get("MUSTER_BENCH_LIMITS") != "lifted":
        found = _shipped()
        figures += _figures(found)
        notes["shipped"] = {name: vars(one) for name, one in found.items()}
        print(f"shipped: {notes['shipped']}", file=sys.stderr, flush=True)
    pairs = _lifted()
    figures += _figures_of_pairs(pairs)
    notes["lifted"] = [{"probe": vars(probe), "muster": vars(muster)} for probe, muster in pairs]
    print(f"lifted: {notes['lifted']}", file=sys.stderr, flush=True)
    return Result("launch", figures, notes)


def _figures_of_pairs(pairs: list[tuple[Launch, Launch]]) -> list[Figure]:
    """The median of each ratio, as the value over the median of the probes."""
    figures = []
    for words, unit, bound, of in (
        ("creating", "s", CREATING, lambda one: one.created),
        ("CPU per pod", "CPU ms", CPU, lambda one: one.our_cpu * 1000 / REPLICAS),
    ):
        reference = statistics.median(of(probe) for probe, _ in pairs)
        ratio = statistics.median(of(muster) / of(probe) for probe, muster in pairs)
        figures.append(Figure(f"{words}, lifted limits", ratio * reference, unit, bound, reference, "ratio"))
    muster = pairs[-1][1]
    return [
        *figures,
        Figure("mutating requests per pod, lifted limits", muster.mutating / REPLICAS, "", 1.05),
        Figure("lists of the job's pods, lifted limits", float(max(one.lists for _, one in pairs)), "", 0.0),
    ]


def _figures(found: dict[str, Launch]) -> list[Figure]:
    muster, limits = found["muster"], "shipped"
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


def _shipped() -> dict[str, Launch]:
    with kube.bench(has_lifted_limits=False) as bench:
        found = {
            "probe before": _probe(bench, "2-before"),
            "muster": _muster(bench),
            "probe after": _probe(bench, "2-after"),
            "indexed job": _of_template(bench, JOBS, _indexed_job()),
        }
        with pytorchjob.operator(bench.plane, bench.admin):
            made = pytorchjob.job("reference", REPLICAS, kube.pod_spec())
            found["pytorchjob"] = _of_template(bench, pytorchjob.JOBS, made)
        return found


def _lifted() -> list[tuple[Launch, Launch]]:
    """Return pairs of a probe and a launch by one installation, each pair in the other order than the one before it."""
    pairs: list[tuple[Launch, Launch]] = []
    with (
        kube.bench(has_lifted_limits=True) as bench,
        tempfile.TemporaryDirectory(prefix="muster-bench-") as folder,
        kube.installation(bench, Path(folder)) as muster,
    ):
        kube.warm(muster)
        _probe(bench, "2-first")  # the first pods of a new control plane take its scheduler a minute and a half
        for number in range(PAIRS):
            if number % 2 == 0:
                probe = _probe(bench, f"2-probe{number}")
            launch = launched(bench, muster)
            bench.clear()
            if number % 2:
                probe = _probe(bench, f"2-probe{number}")
            pairs.append((probe, launch))
            print(f"pair {number + 1}: {probe} {launch}", file=sys.stderr, flush=True)
    return pairs


def _muster(bench: Bench) -> Launch:
    with (
        tempfile.TemporaryDirectory(prefix="muster-bench-") as folder,
        kube.installation(bench, Path(folder)) as muster,
    ):
        kube.warm(muster)
        found = launched(bench, muster)
        bench.clear()
    return found


def launched(bench: Bench, muster: Rig) -> Launch:
    """Launch a job of all replicas by an installation, and cancel it."""
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
    began, cpu = bench.create(run)
    running = eye.at() - began
    created = audit.creating_seconds(bench.asked(place))
    bench.clear()
    return Launch(running, created, {PROBE: cpu}, load=load)


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
