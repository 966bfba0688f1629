"""What 50 namespaces of teams cost: the CPU of a launch beside one with a single namespace, and watches that are opened; and how long
a check of a cluster of as many nodes takes.

Two installations on one control plane launch in turns (ABBA): one that uses a single namespace, and one with a running job of
a team in each of 50 more. Watches are the API server's own count, in a quiet minute, of the 50 namespaces or of all at once.
"""

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rig.world import NAMESPACE, await_right, let_make_namespaces, let_watch_all, username

from . import kube, launch
from .figures import Figure, Result
from .kube import REPLICAS, Bench
from .rig import Rig

COUNT = int(os.environ.get("MUSTER_BENCH_NAMESPACES", "50"))
PAIRS = int(os.environ.get("MUSTER_BENCH_PAIRS", "3"))
QUIET_SECONDS = 60.0
MOST_WATCHES, MOST_CPU, MOST_CHECK = 4.0, 1.1, 5.0
CHECKS = 7
KINDS = ("pods", "services", "events")


def run() -> Result:
    figures: list[Figure] = []
    notes: dict[str, object] = {"replicas": REPLICAS, "namespaces": COUNT, "pairs": PAIRS}
    with (
        kube.bench(has_lifted_limits=True) as bench,
        tempfile.TemporaryDirectory(prefix="muster-bench-") as one,
        tempfile.TemporaryDirectory(prefix="muster-bench-") as many,
        kube.installation(bench, Path(one)) as single,
        kube.installation(bench, Path(many), TEAM_ROLE=f"{NAMESPACE}-team") as several,
    ):
        for each in (single, several):
            kube.warm(each)
        checks = [_checked(single) for _ in range(CHECKS)]
        notes["checks, s"] = checks
        figures.append(Figure("check without pods, longest", max(checks), "s", MOST_CHECK))
        _fill(bench, several)
        for words in ("one by one", "all at once"):
            if words == "all at once":
                let_watch_all(bench.admin, NAMESPACE)
                time.sleep(330)  # until the processes ask again what they may
            counts = _watches(bench)
            notes[f"watches, {words}"] = counts
            figures.append(Figure(f"watches in 10 s, most of a kind, {words}", max(counts.values()), "", MOST_WATCHES))
            pairs = _pairs(bench, single, several)
            notes[f"pairs, {words}"] = pairs
            reference = statistics.median(one for one, _ in pairs)
            ratio = statistics.median(other / one for one, other in pairs)
            figures.append(Figure(f"CPU per pod, {words}", ratio * reference, "CPU ms", MOST_CPU, reference, "ratio"))
            print(f"{words}: {counts} {pairs}", file=sys.stderr, flush=True)
    return Result("namespaces", figures, notes)


def _checked(muster: Rig) -> float:
    """Return how long `muster clusters check` takes on the server, whose requests a test bounds."""
    began = time.perf_counter()
    muster.client.check_cluster("gpus")
    return time.perf_counter() - began


def _fill(bench: Bench, muster: Rig) -> None:
    """Give each of the teams a namespace, and have a job of one pod run there."""
    let_make_namespaces(bench.admin, NAMESPACE)
    for number in range(COUNT):
        team, namespace = f"team-{number}", f"{NAMESPACE}-{number}"
        muster.manage(
            "queue", f"of-{number}", "--team", team, "--slots", "8", "--cluster", "gpus", "--resource", "gpu", "--member", "admin",
        )  # fmt: skip
        muster.client.bind_namespace("gpus", team, namespace, make=True)
        await_right(bench.admin, username(NAMESPACE), namespace=namespace, resource="pods", verb="create")
        asked = {"nodes": 1, "nproc_per_node": 1, "start_timeout_seconds": 3600}
        muster.client.submit(["torchrun", "train.py"], queue=f"of-{number}", directory=None, **asked)
    kube.until(lambda: sum(job.phase == "running" for job in muster.client.jobs(phase="running")) >= COUNT, every=2.0)


def _watches(bench: Bench) -> dict[str, float]:
    """Return how many watches of each kind were opened in 10 s, on average, beside those of NAMESPACE alone."""
    place = bench.place()
    time.sleep(QUIET_SECONDS)
    opened = Counter(one.kind for one in bench.asked(place) if one.verb == "watch" and one.namespace != NAMESPACE)
    return {kind: opened[kind] * 10 / QUIET_SECONDS for kind in KINDS}


def _pairs(bench: Bench, single: Rig, several: Rig) -> list[tuple[float, float]]:
    """Return pairs of CPU ms per pod, each pair in the other order than the one before it."""
    found = []
    for number in range(PAIRS):
        order = (single, several) if number % 2 == 0 else (several, single)
        spent = {}
        for muster in order:
            spent[muster.url] = launch.launched(bench, muster).our_cpu * 1000 / REPLICAS
            bench.clear()
        found.append((spent[single.url], spent[several.url]))
    return found
