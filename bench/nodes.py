"""The pages of a cluster of 1,000 nodes and 8,000 GPUs that jobs hold, and what beat's look at its nodes costs.

Once jobs of eight whole nodes hold them, once 7,600 jobs of one GPU each, which is the most rows that a page can have to
read. The pages are asked for over HTTP by one signed-in reader, one after another, compressed as a browser asks for them.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from .figures import Figure, Result
from .nodes_cluster import name
from .procs import Meter, descendants, scaled
from .rig import ROOT, Rig, rig

NODES, LOOKS, FIRST = 1000, 60, 3
CLUSTERS = json.dumps(
    {
        "local": {"BACKEND": "jobs.clusters.memory.MemoryCluster"},
        "many": {"BACKEND": "bench.nodes_cluster.ManyNodes", "OPTIONS": {"count": NODES}},
    }
)
PAGE = "/clusters/many"
# nodes of a job, and GPUs of each of its replicas
FILLS = {"whole_nodes": (8, 8), "single_gpus": (1, 1)}


def run() -> Result:
    figures, notes = list[Figure](), dict[str, object]()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        with rig(Path(folder) / "installation", environ={"MUSTER_CLUSTERS": CLUSTERS}) as muster:
            for fill, shape in FILLS.items():
                seeded = _seed(muster, *shape)
                notes[fill] = seeded
                with Meter(lambda: descendants(muster.pid)) as meter:
                    page, size = _looks(muster, PAGE)
                parts = scaled(meter.parts(), 1000 / (LOOKS + FIRST))
                figures += [
                    Figure(f"{fill}_page_p95", _p95(page), "ms", 120.0), Figure(f"{fill}_page_median", _median(page), "ms"),
                    Figure(f"{fill}_page_size", size / 1000, "KB", 60.0),
                    Figure(f"{fill}_page_cpu", sum(parts.values()), "CPU ms", parts=parts),
                ]  # fmt: skip
                for what, path in {
                    "last_page": f"{PAGE}?page=10", "filtered": f"{PAGE}?only=idle", "node": f"{PAGE}/nodes/{name(7)}",
                    "api": f"/api/v1{PAGE}/nodes?limit=200",
                }.items():  # fmt: skip
                    taken, length = _looks(muster, path)
                    figures.append(Figure(f"{fill}_{what}_p95", _p95(taken), "ms", 120.0))
                    notes[f"{fill}_{what}_kb"] = round(length / 1000, 1)
            figures += [
                Figure("look_unchanged", float(seeded["unchanged_ms"]), "ms"),
                Figure("look_unchanged_statements", float(seeded["unchanged_statements"]), "statements", 8.0),
                Figure("look_changed", float(seeded["changed_ms"]), "ms"),
                Figure("look_changed_statements", float(seeded["changed_statements"]), "statements", 10.0),
            ]
    return Result("nodes", figures, notes)


def _seed(muster: Rig, nodes_of_a_job: int, gpus: int) -> dict[str, float]:
    """Fill the nodes in a process with the installation's settings; its last line."""
    words = [sys.executable, "-m", "bench.nodes_seed", str(NODES), str(nodes_of_a_job), str(gpus)]
    done = subprocess.run(words, env=muster.env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"filled: {found}", flush=True)
    return found


def _looks(muster: Rig, path: str) -> tuple[list[float], int]:
    """Seconds of each request but the first ones, and bytes of an answer as it was sent."""
    found = [_ask(muster, path) for _ in range(LOOKS + FIRST)]
    return [taken for taken, _ in found[FIRST:]], found[-1][1]


def _ask(muster: Rig, path: str) -> tuple[float, int]:
    who = {"Authorization": f"Bearer {muster.token}"} if path.startswith("/api/") else {"Cookie": muster.cookie}
    request = urllib.request.Request(muster.url + path, headers={**who, "Accept-Encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        return time.perf_counter() - began, len(answer.read())


def _p95(taken: list[float]) -> float:
    return 1000 * statistics.quantiles(taken, n=20)[-1]


def _median(taken: list[float]) -> float:
    return 1000 * statistics.median(taken)
