"""Run the levels of tests as lanes, a few side by side: `python -m tests.support.lanes --size ci` (bin/test calls it).

Each lane is one pytest process with its own Postgres and Redis, in a process group of its own. The slowest starts first,
by the durations of the last run (artifacts/durations.json) or, on a new clone, by the usual ones. Each writes its output
to artifacts/lanes/, with its slowest tests; output of failed lanes is printed at the end. `--resume` skips lanes that
passed at this commit.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.long import head

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"
DURATIONS = ARTIFACTS / "durations.json"
PASSED = ARTIFACTS / "passed.json"

# Levels in the folder tests/, with their usual seconds on two cores. A test checks that every level is a lane.
LANES = {
    "process": 2000, "db": 1500, "cluster": 1300, "system": 1300, "browser": 600, "contract": 450, "simulation": 350,
    "unit": 100,
}  # fmt: skip
AT_ONCE = 3  # most lanes mostly wait: for processes to end, for pods
STOP_SECONDS = 120.0  # for a lane to end its servers and processes
LOOK_SECONDS = 0.5
SLOW_SECONDS = 4.0  # a test that takes longer is listed at the end of its lane's output

# For each size: pytest's option for tests marked `long`, and what is left out, as lanes and in words.
SIZES = {
    "quick": ("none", {"cluster"}, "tests/cluster (bin/test tests/cluster), and all that is marked long (--long all)"),
    "ci": ("part", set[str](), "most of what is marked long, sampled or full"),
    "all": ("all", set[str](), ""),
}


@dataclass
class Lane:
    name: str
    long: str
    began: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        slowest = ["--durations", "50", "--durations-min", str(SLOW_SECONDS)]
        words = ["-q", "--maxfail", "10", "-p", "no:cacheprovider", *slowest, "--long", self.long, f"tests/{self.name}"]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *words], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return ARTIFACTS / "lanes" / f"{self.name}.log"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def last_line(self) -> str:
        """pytest's own summary; a thread that outlives its server may still print something after it."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        summaries = [line for line in lines if re.search(r"\d+ (passed|failed|error).* in [0-9.]+s", line)]
        return (summaries or lines or ["no output"])[-1].strip("= ")

    def stop(self) -> None:
        """End the lane as Ctrl-C does, so that its servers and processes end too."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


def slowest_first(names: list[str], seconds: dict[str, float]) -> list[str]:
    return sorted(names, key=lambda name: -seconds.get(name, LANES[name]))


def run(names: list[str], *, long: str) -> dict[str, int]:
    """Run these lanes; returns their exit codes. All are stopped when this process is interrupted."""
    waiting, running, codes = list(names), list[Lane](), dict[str, int]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                lane = Lane(waiting.pop(0), long)
                lane.start()
                running.append(lane)
                print(f"{lane.name:12} started", flush=True)
            for lane in [one for one in running if one.process.poll() is not None]:
                running.remove(lane)
                codes[lane.name] = lane.process.returncode
                _remember(DURATIONS, lane.name, round(lane.seconds, 1))
                print(f"{lane.name:12} {lane.seconds:5.0f} s  {lane.last_line()}", flush=True)
            time.sleep(LOOK_SECONDS)
    finally:
        for lane in running:
            lane.stop()
    return codes


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bin/test", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--resume", action="store_true", help="leave out lanes that passed at this commit")
    asked = parser.parse_args(words)
    long, apart, left_out = SIZES[asked.size]
    key = f"{asked.size} {commit()}"
    passed = set(_read(PASSED).get(key, [])) if asked.resume else set()
    names = slowest_first([name for name in LANES if name not in apart | passed], _read(DURATIONS))
    if passed:
        print(f"Passed at this commit already: {', '.join(sorted(passed))}")
    if long == "part":
        print(f"Of the tests that take long a part runs, chosen by commit {head()[:12]}", flush=True)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell that starts this process in the background sets SIGINT to ignored, which every child would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    codes = run(names, long=long)
    failed = [name for name, code in codes.items() if code]
    if key.partition(" ")[2]:
        _remember(PASSED, key, sorted(passed | (set(codes) - set(failed))))
    for name in failed:
        print(f"\n== {name} failed\n{Lane(name, long).log.read_text(errors='replace')}", flush=True)
    print(f"\n{len(codes) - len(failed)} of {len(codes)} lanes passed in {time.monotonic() - began:.0f} s.", end=" ")
    print(f"Left out: {left_out}; bin/test --all runs everything." if left_out else "Nothing was left out.")
    return 1 if failed else 0


def commit() -> str:
    """Return the commit that is checked out; empty if files differ from it."""
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True)
    return "" if changed.stdout or changed.returncode else head()


def _read(path: Path) -> dict:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(path: Path, key: str, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**_read(path), key: value}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
