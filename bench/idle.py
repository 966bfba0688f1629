"""Everything started and no job: CPU of all processes over a minute, and their memory with shared pages in parts."""

import tempfile
import time
from pathlib import Path

from .figures import Figure, Result
from .procs import Meter, descendants, pss_bytes, short
from .rig import rig

SETTLE_SECONDS = 20
SECONDS = 90


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, rig(Path(folder) / "installation") as muster:
        time.sleep(SETTLE_SECONDS)
        with Meter(lambda: descendants(muster.pid), every=5) as meter:
            time.sleep(SECONDS)
        family = descendants(muster.pid)
        memory = {one.pid: pss_bytes(one.pid) for one in family}
    by_name: dict[str, float] = {}
    for one in family:
        by_name[short(one.command)] = round(by_name.get(short(one.command), 0) + memory[one.pid] / 2**20, 1)
    share = 100 * meter.cpu_seconds() / SECONDS
    return Result(
        "idle",
        [
            Figure("cpu", share, "% of one core", 3.0),
            Figure("memory", sum(memory.values()) / 1e6, "MB PSS", 600.0),
            Figure("memory_web", by_name.get("uvicorn", 0.0) * 2**20 / 1e6, "MB PSS"),
            Figure("memory_tasks", by_name.get("celery worker", 0.0) * 2**20 / 1e6, "MB PSS"),
        ],
        {"cpu_seconds_by_process": meter.by_command(), "mib_by_process": by_name, "seconds": SECONDS},
    )
