"""A pass of the scheduler over queues of one cohort that are full, with 1,000, 10,000 and 100,000 waiting jobs.

Before each pass one running job ends, so that each reads, decides, admits and commits. No process but the scheduler's runs:
Postgres with fsync, Redis, and the production code from the locks to the commit.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from embedded.servers import Servers

from .figures import Figure, Result
from .rig import ROOT

SIZES = ((1_000, 10), (10_000, 100), (100_000, 1_000))  # waiting jobs, queues
POLICIES = ("strict", "backfill", "best_effort")
BOUND_AT = 10_000


def run() -> Result:
    figures, notes = list[Figure](), dict[str, object]()
    for waiting, queues in SIZES:
        for policy in POLICIES if waiting == BOUND_AT else POLICIES[:1]:
            found = _measured(waiting, queues, policy)
            name, is_bound = f"{policy}_{waiting}", waiting == BOUND_AT
            figures += [
                Figure(f"{name}_decision_p99", found["decision_p99"], "ms", 10.0 if is_bound else None),
                Figure(f"{name}_pass_p99", found["pass_p99"], "ms", 60.0 if is_bound else None),
                Figure(f"{name}_pass_median", found["pass_median"], "ms"),
                Figure(f"{name}_why_median", found["why_median"], "ms"),
            ]
            notes[name] = found
    return Result("admission", figures, notes)


def _measured(waiting: int, queues: int, policy: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, Servers(Path(folder) / "servers") as servers:
        env = {
            **os.environ, "DATABASE_URL": servers.database_url, "REDIS_URL": servers.redis_url, "MUSTER_SECRET_KEY": "only for a benchmark",
            "MUSTER_CLUSTERS": json.dumps({"local": {"BACKEND": "jobs.clusters.memory.MemoryCluster"}}),
        }  # fmt: skip
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], env=env, cwd=ROOT, check=True)
        words = [sys.executable, "-m", "bench.admission_passes", str(waiting), str(queues), policy]
        done = subprocess.run(words, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{waiting} waiting in {queues} queues, {policy}: {found}", flush=True)
    return found
