"""Run the levels of tests as lanes, a few side by side: `python -m tests.support.lanes --size ci` (bin/test calls it).

Each lane is one pytest process with its own Postgres and Redis, in a process group of its own. The slowest starts first,
by the durations of the last run (artifacts/durations.json) or, on a new clone, by the usual ones. Each writes its output
to artifacts/lanes/, with its slowest tests; output of failed lanes is printed at the end. A lane that has passed here
with the same content (keys.py, stamps.py) is not run again; `--fresh` runs it all.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from embedded.files import read_json
from tests.support import keys, stamps

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"
DURATIONS = ARTIFACTS / "durations.json"

# Folders of tests/, with their usual seconds on two cores. Every test is in one of them.
LANES = {
    "system/image": 700, "db": 600, "cluster": 480, "browser": 380, "process/agent": 290, "process/server": 250,
    "contract": 230, "system/stack": 200, "system/faults": 200, "process/embedded": 150, "unit": 100,
    "process/client": 90, "process/clusters": 40, "simulation": 30,
}  # fmt: skip
AT_ONCE = 4  # a lane waits half of its time, for processes to end and for pods
STOP_SECONDS = 120.0  # for a lane to end its servers and processes
LOOK_SECONDS = 0.5
SLOW_SECONDS = 4.0  # a test that takes longer is listed at the end of its lane's output

# For each size: lanes that it leaves out, and in words what else.
SIZES = {
    "quick": (
        {one for one in LANES if one.startswith(("cluster", "system", "process/server"))},
        "tests/cluster, tests/system and tests/process/server, and what is marked ci, full or soak",
    ),
    "ci": (set[str](), "what is marked full or soak"),
    "all": (set[str](), "soak tests whose guards are as they were; bin/test --soak runs all"),
    "soak": ({"unit", "browser"}, "everything else than soak tests"),
}
ALWAYS = {"unit"}  # never taken from a stamp: it reads every file, and takes a minute
NO_TESTS = 5  # pytest's exit code: a lane without a soak test has passed, and one whose tests guard what is as it was


@dataclass
class Lane:
    name: str
    size: str
    is_fresh: bool = False
    began: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        slowest = ["--durations", "50", "--durations-min", str(SLOW_SECONDS)]
        words = ["-q", "--maxfail", "10", "-p", "no:cacheprovider", *slowest, "--size", self.size, f"tests/{self.name}"]
        words += ["--fresh"] if self.is_fresh else []
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *words], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return ARTIFACTS / "lanes" / f"{self.name.replace('/', '.')}.log"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def last_line(self) -> str:
        """pytest's own summary; a thread that outlives its server may still print something after it."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        summaries = [line for line in lines if re.search(r"\d+ (passed|failed|error).* in [0-9.]+s", line)]
        return (summaries or lines or ["no output"])[-1].strip("= ")

    def notes(self) -> list[str]:
        """What it left out, and which soak tests it ran, in its own words."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [f"{self.name}: {line}" for line in lines if line.startswith(("left out", "soak: "))]

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


def run(
    names: list[str], *, size: str, is_fresh: bool = False, passed: Callable[[Lane], None] = lambda lane: None
) -> dict[str, int]:
    """Run these lanes; returns their exit codes, and calls `passed` for each that passes. All are stopped when this process is interrupted."""
    waiting, running, codes = list(names), list[Lane](), dict[str, int]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                lane = Lane(waiting.pop(0), size, is_fresh)
                lane.start()
                running.append(lane)
                print(f"{lane.name:16} started", flush=True)
            for lane in [one for one in running if one.process.poll() is not None]:
                running.remove(lane)
                code = lane.process.returncode
                codes[lane.name] = 0 if code == NO_TESTS and size in ("ci", "soak") else code
                _remember(DURATIONS, lane.name, round(lane.seconds, 1))
                print(f"{lane.name:16} {lane.seconds:5.0f} s  {lane.last_line()}", flush=True)
                if codes[lane.name] == 0:
                    passed(lane)
            time.sleep(LOOK_SECONDS)
    finally:
        for lane in running:
            lane.stop()
    return codes


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bin/test", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--fresh", action="store_true", help="run also what has passed here with the same content")
    asked = parser.parse_args(words)
    size, is_fresh = asked.size, asked.fresh
    apart, left_out = SIZES[size]
    names = [name for name in LANES if name not in apart]
    known = {name: keys.key(name) for name in names} if size != "soak" and keys.is_clean() else {}
    taken = set[str]() if is_fresh else _from_stamps(known, size)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell that starts this process in the background sets SIGINT to ignored, which every child would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def passed(lane: Lane) -> None:
        if lane.name in known and keys.is_clean():
            stamps.write(lane.name, size=size, key=known[lane.name], words=lane.last_line())

    waiting = slowest_first([name for name in names if name not in taken], read_json(DURATIONS) or {})
    codes = run(waiting, size=size, is_fresh=is_fresh, passed=passed)
    failed = [name for name, code in codes.items() if code]
    for name in failed:
        print(f"\n== {name} failed\n{Lane(name, size).log.read_text(errors='replace')}", flush=True)
    for line in sorted({line for name in codes for line in Lane(name, size).notes()}):
        print(line)
    took = f"{len(codes) - len(failed)} of {len(codes)} lanes passed in {time.monotonic() - began:.0f} s"
    print(f"\n{took}{f', {len(taken)} taken from stamps' if taken else ''}. Left out: {left_out}.")
    return 1 if failed else 0


def _from_stamps(known: dict[str, str], size: str) -> set[str]:
    """Return the lanes that have passed here with the same content, and say where. The full run is owed what CI takes."""
    taken = set[str]()
    for name, key in known.items():
        if name not in ALWAYS and (stamp := stamps.find(name, size=size, key=key)):
            print(f"{name:16} not run again: {stamp}", flush=True)
            taken.add(name)
            if size == "ci":
                stamps.owe(name)
    stamps.forget_old(time.time())
    return taken


def _remember(path: Path, key: str, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**(read_json(path) or {}), key: value}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
