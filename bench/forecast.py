"""Whether jobs start within the ranges that are foretold for them: months of a simulated queue, played by the production code.

Jobs arrive, wait, are admitted by `queues.admission.decide` and end; each time one has to wait, its range is asked for as a
page would ask. The months and seeds are others than those by which the constants of the forecast were chosen.
"""

import json
import os
import statistics
import subprocess
import sys

from .figures import Figure, Result
from .rig import ROOT

SEEDS = range(101, 111)
SHARE = 0.8  # of starts that a range is to hold


def run() -> Result:
    env = {**os.environ, "MUSTER_SECRET_KEY": "only for a benchmark"}
    every: dict[str, list[list[float]]] = {"told": [], "baseline": [], "unknown": []}
    months = {}
    for seed in SEEDS:
        words = [sys.executable, "-m", "bench.forecast_month", str(seed)]
        done = subprocess.run(words, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        month = json.loads(done.stdout.strip().splitlines()[-1])
        for name, rows in month.items():
            every[name] += rows
        months[str(seed)] = {"asked": len(month["told"]), "outside_percent": round(_outside(month["told"]), 1)}
        print(f"seed {seed}: {months[str(seed)]}", flush=True)
    told, baseline = every["told"], every["baseline"]
    # Figures are bounded from above: what lies outside of its range is at most a fifth.
    figures = [
        Figure("starts_outside", _outside(told), "%", 100 * (1 - SHARE), _outside(baseline)),
        Figure("median_width", _width(told), "min", 1.5, statistics.median(row[-1] for row in told) / 60, "ratio"),
        Figure("baseline_width", _width(baseline), "min"),
        Figure("earlier", 100 * statistics.mean(wait < least for least, _, wait in told), "%"),
        Figure("later", 100 * statistics.mean(wait > most for _, most, wait in told), "%"),
        Figure("without_a_range", 100 * len(every["unknown"]) / (len(told) + len(every["unknown"])), "%"),
    ]
    return Result("forecast", figures, {"asked": len(told), "months": months})


def _outside(rows: list[list[float]]) -> float:
    """Percent of waits that did not end within the range that was told."""
    return 100 * statistics.mean(not least <= wait <= most for least, most, wait in rows)


def _width(rows: list[list[float]]) -> float:
    return statistics.median(most - least for least, most, _ in rows) / 60
