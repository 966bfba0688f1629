"""12,500 jobs: what a page of the list costs the server, the first and the last one alike.

The rows are put into the installation's own database; the pages are asked for over HTTP by one signed-in reader, one
after another, so that each answer's time is the server's own and no queue's.
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
from .procs import Meter, descendants, scaled
from .rig import ROOT, Rig, rig

JOBS = 12_500
LOOKS, FIRST = 40, 3  # the first looks fill caches that stay full all day


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, rig(Path(folder) / "installation") as muster:
        seeded = json.loads(_manage(muster, "bench.list_seed", str(JOBS)))
        last = seeded["last_page_before"]
        pages = {
            "page_first": "/jobs",
            "page_last": f"/jobs?before={last}",
            "api_first": "/api/v1/jobs",
            "api_last": _last_of_api(muster),
        }
        size = _size(muster, "/jobs")
        with Meter(lambda: descendants(muster.pid)) as meter:
            times = {"page_first": _times(muster, "/jobs")}
        times |= {name: _times(muster, path) for name, path in pages.items() if name not in times}
    figures = [Figure(f"{name}_p95", 1000 * _p95(taken), "ms", 50.0) for name, taken in times.items()]
    figures.append(Figure("page_size", size / 1000, "KB", 20.0))
    figures.append(Figure("queries_of_a_page", seeded["queries"][-1], "queries", seeded["queries"][0]))
    parts = scaled(meter.parts(), 1000 / (LOOKS + FIRST))
    figures.append(Figure("page_first_cpu", sum(parts.values()), "CPU ms", parts=parts))
    figures.append(Figure("page_first_median", 1000 * statistics.median(times["page_first"]), "ms"))
    notes = {f"{name}_median_ms": round(1000 * statistics.median(taken), 1) for name, taken in times.items()}
    return Result("list", figures, {"jobs": JOBS, "queries_first_and_last": seeded["queries"], **notes})


def _manage(muster: Rig, module: str, *arguments: str) -> str:
    """A module of ours in a process with the installation's settings; its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=muster.env, cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip().splitlines()[-1]


def _times(muster: Rig, path: str) -> list[float]:
    found = []
    for _ in range(LOOKS + FIRST):
        began = time.perf_counter()
        _get(muster, path)
        found.append(time.perf_counter() - began)
    return found[FIRST:]


def _get(muster: Rig, path: str) -> bytes:
    url = path if path.startswith("http") else muster.url + path
    who = {"Authorization": f"Bearer {muster.token}"} if "/api/" in path else {"Cookie": muster.cookie}
    with urllib.request.urlopen(urllib.request.Request(url, headers=who), timeout=60) as answer:
        body: bytes = answer.read()
    return body


def _size(muster: Rig, path: str) -> int:
    """Bytes of a page as a browser is sent it."""
    headers = {"Cookie": muster.cookie, "Accept-Encoding": "gzip"}
    with urllib.request.urlopen(urllib.request.Request(muster.url + path, headers=headers), timeout=60) as answer:
        return len(answer.read())


def _last_of_api(muster: Rig) -> str:
    """Paged to the end as a script would; the address of the last page of the usual size."""
    url = "/api/v1/jobs?limit=50"
    while following := json.loads(_get(muster, url))["next"]:
        url = following
    return url


def _p95(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=20)[-1]
