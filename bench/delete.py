"""1,000 running pods, cancelled: how long until the last one is gone, and how many requests that took.

Beside it a bare delete of the collection with the same grace, which is what the cluster itself needs.
"""

import statistics
import tempfile
import time
from pathlib import Path

from jobs.clusters.kubernetes.build.manifests import DRAIN_SECONDS

from . import kube
from .figures import Figure, Result
from .kube import PODS, REPLICAS, Bench

MOST_REQUESTS = 5
WATCHES = frozenset({"watch"})  # they go on whatever happens, and are no answer to a cancel


def run() -> Result:
    with kube.bench(has_lifted_limits=True) as bench:
        before, after = _bare(bench, "2-before"), 0.0
        seconds, asked, load = _muster(bench)
        after = _bare(bench, "2-after")
    notes = {
        "pods": REPLICAS, "limits": "lifted", "bare": [round(before, 2), round(after, 2)], "load": load,
        "requests": dict(sorted(asked.items())),
    }  # fmt: skip
    reference = statistics.mean((before, after))
    figures = [
        Figure("gone", seconds, "s", 1.5, reference=reference, bound_on="ratio"),
        Figure("requests", float(sum(asked.values())), "", MOST_REQUESTS),
    ]
    return Result("delete", figures, notes)


def _bare(bench: Bench, run: str) -> float:
    running = bench.eye("running")
    bench.create(run)
    running.at()
    time.sleep(3)
    gone = bench.eye("gone")
    began = time.time()
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": DRAIN_SECONDS}
    answer = bench.admin.request("DELETE", PODS, json=options, timeout=120)
    assert answer.status_code == 200, answer.text
    return gone.at() - began


def _muster(bench: Bench) -> tuple[float, dict[str, int], float]:
    with (
        tempfile.TemporaryDirectory(prefix="muster-bench-") as folder,
        kube.installation(bench, Path(folder)) as muster,
    ):
        kube.warm(muster)
        running = bench.eye("running")
        job = kube.submit(muster)
        running.at()
        kube.until_phase(muster, job.id, "running")
        time.sleep(3)
        gone, place, load = bench.eye("gone"), bench.place(), kube.load()
        began = time.time()
        muster.client.cancel(job.id)
        seconds = gone.at() - began
        kube.until_phase(muster, job.id, "cancelled")
        asked: dict[str, int] = {}
        for one in bench.asked(place):
            if one.verb not in WATCHES:
                asked[f"{one.verb} {one.kind}"] = asked.get(f"{one.verb} {one.kind}", 0) + 1
    return seconds, asked, load
