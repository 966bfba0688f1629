"""Submissions: 20 a second for 30 s on the memory cluster, then 1 a second for 60 s of short jobs on the local one.

An open loop: each submission begins at its own moment, whether the one before was answered or not. A job counts as
started once when its history shows one admission and one launch, and no second attempt.
"""

import statistics
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from muster.client import Client

from .figures import Figure, Result
from .rig import Rig, rig

PATIENCE_SECONDS = 120
MEMORY = '{"local": {"BACKEND": "jobs.clusters.memory.MemoryCluster", "OPTIONS": {"run_seconds": 2}}}'


@dataclass
class Load:
    """`taken` in seconds per answered submission; `jobs` their ids."""

    taken: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        with rig(Path(folder) / "memory", environ={"MUSTER_CLUSTERS": MEMORY}) as muster:
            muster.manage("queue", "default", "--team", "demo", "--slots", "4000")
            memory = _submit(muster, ["sh", "-c", "true"], per_second=20, seconds=30)
            once = _started_once(muster, memory)
        with rig(Path(folder) / "local") as muster:
            local = _submit(muster, ["sh", "-c", "echo hello"], per_second=1, seconds=60)
            succeeded = _started_once(muster, local)
    figures = [
        Figure("memory_p95", 1000 * statistics.quantiles(memory.taken, n=20)[-1], "ms", 150.0),
        Figure("memory_not_started_once", float(20 * 30 - once), "jobs", 0.0),
        Figure("local_p95", 1000 * statistics.quantiles(local.taken, n=20)[-1], "ms", 150.0),
        Figure("local_not_started_once", float(60 - succeeded), "jobs", 0.0),
    ]
    notes = {
        "memory_median_ms": round(1000 * statistics.median(memory.taken), 1),
        "local_median_ms": round(1000 * statistics.median(local.taken), 1),
        "errors": dict(Counter(memory.errors + local.errors)),
    }
    return Result("submit", figures, notes)


def _submit(muster: Rig, command: list[str], *, per_second: int, seconds: int) -> Load:
    load, lock = Load(), threading.Lock()
    clients = threading.local()

    def one(due: float) -> None:
        client = clients.__dict__.setdefault("client", Client(muster.url, muster.token))
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            job = client.submit(command, queue="default", directory=None)
        except Exception as error:  # counted and shown: a refused submission is a result here
            with lock:
                load.errors.append(f"{type(error).__name__}: {error}"[:120])
            return
        with lock:
            load.taken.append(time.monotonic() - due)
            load.jobs.append(job.id)

    began = time.monotonic() + 0.5
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(one, [began + number / per_second for number in range(per_second * seconds)]))
    return load


def _started_once(muster: Rig, load: Load) -> int:
    """How many ended well after exactly one admission and one launch."""
    until = time.monotonic() + PATIENCE_SECONDS
    open_jobs = set(load.jobs)
    while open_jobs and time.monotonic() < until:
        open_jobs -= {job for job in open_jobs if muster.client.job(job).is_finished}
        time.sleep(0.5)
    return sum(_is_once(muster, job) for job in load.jobs)


def _is_once(muster: Rig, job: int) -> bool:
    seen = muster.client.job(job)
    steps = Counter(event.phase for event in muster.client.events(job) if event.kind == "step")
    return seen.phase == "succeeded" and seen.attempt == 1 and steps["admitted"] == 1 and steps["starting"] == 1
