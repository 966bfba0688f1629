"""The overview of an installation with 1,000 nodes, 12,500 jobs and 100 teams, for an administrator and for a member of one team.

The page and the part of it that live updates ask for are fetched over HTTP, one after another, compressed as a browser asks.
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
from .nodes import CLUSTERS
from .procs import Meter, descendants, scaled
from .rig import ROOT, Rig, rig

JOBS, TEAMS = 12_500, 100
LOOKS, FIRST = 60, 3
BOUND, MOST_KB = 80.0, 60.0


def run() -> Result:
    figures = list[Figure]()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        with rig(Path(folder) / "installation", environ={"MUSTER_CLUSTERS": CLUSTERS}) as muster:
            words = [sys.executable, "-m", "bench.overview_seed", str(JOBS), str(TEAMS)]
            done = subprocess.run(words, env=muster.env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
            seeded = json.loads(done.stdout.strip().splitlines()[-1])
            print(f"filled: {seeded}", flush=True)
            for reader, cookie in {"admin": muster.cookie, "member": seeded.pop("cookie")}.items():
                with Meter(lambda: descendants(muster.pid)) as meter:
                    taken, size = _looks(muster, cookie)
                parts = scaled(meter.parts(), 1000 / (LOOKS + FIRST))
                figures += [
                    Figure(f"{reader}_p95", 1000 * statistics.quantiles(taken, n=20)[-1], "ms", BOUND),
                    Figure(f"{reader}_median", 1000 * statistics.median(taken), "ms"),
                    Figure(f"{reader}_size", size / 1000, "KB", MOST_KB),
                    Figure(f"{reader}_cpu", sum(parts.values()), "CPU ms", parts=parts),
                ]
    return Result("overview", figures, seeded)


def _looks(muster: Rig, cookie: str) -> tuple[list[float], int]:
    """Seconds of each request but the first ones, and bytes of an answer as it was sent."""
    taken, size = [], 0
    for _ in range(LOOKS + FIRST):
        request = urllib.request.Request(muster.url + "/", headers={"Cookie": cookie, "Accept-Encoding": "gzip"})
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=60) as answer:
            size = len(answer.read())
        taken.append(time.perf_counter() - began)
    return taken[FIRST:], size
