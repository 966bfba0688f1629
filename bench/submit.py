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
from .procs import Meter, descendants, scaled
from .rig import Rig, rig
from .rows import FLUSH_SECONDS, open_jobs, rows

PER_SECOND, SECONDS = 20, 30
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
            memory, costs = _metered(muster)
            once = _started_once(muster, memory)
        with rig(Path(folder) / "local") as muster:
            local = _submit(muster, ["sh", "-c", "echo hello"], per_second=1, seconds=60)
            succeeded = _started_once(muster, local)
    figures = [
        Figure("memory_p95", 1000 * statistics.quantiles(memory.taken, n=20)[-1], "ms", 150.0),
        Figure("memory_median", 1000 * statistics.median(memory.taken), "ms"),
        Figure("memory_not_started_once", float(PER_SECOND * SECONDS - once), "jobs", 0.0),
        Figure("local_p95", 1000 * statistics.quantiles(local.taken, n=20)[-1], "ms", 150.0),
        Figure("local_median", 1000 * statistics.median(local.taken), "ms"),
        Figure("local_not_started_once", float(60 - succeeded), "jobs", 0.0),
    ]
    return Result("submit", figures + costs, {"errors": dict(Counter(memory.errors + local.errors))})


def _metered(muster: Rig) -> tuple[Load, list[Figure]]:
    """The load on the memory cluster, and what one job of it costs from its submission to its end."""
    url = muster.env["DATABASE_URL"]
    before = rows(url)
    with Meter(lambda: descendants(muster.pid)) as meter:
        load = _submit(muster, ["sh", "-c", "true"], per_second=PER_SECOND, seconds=SECONDS)
        until = time.monotonic() + PATIENCE_SECONDS
        while open_jobs(url) and time.monotonic() < until:
            time.sleep(1)
    time.sleep(FLUSH_SECONDS)
    found, jobs, parts = rows(url).since(before), len(load.jobs), meter.parts()
    figures = [
        Figure("memory_cpu_per_job", 1000 * sum(parts.values()) / jobs, "CPU ms", parts=scaled(parts, 1000 / jobs)),
        Figure("memory_cores", sum(parts.values()) / SECONDS, "cores", parts=scaled(parts, 1 / SECONDS)),
        Figure("memory_visits_per_job", found.visits / jobs, "visits"),
        Figure("memory_rows_written_per_job", found.written / jobs, "rows"),
        Figure("memory_rows_kept_per_job", found.kept / jobs, "rows"),
        Figure("memory_database_per_job", found.size_bytes / jobs / 1000, "KB"),
    ]
    return load, figures


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
