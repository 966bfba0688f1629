"""Eight ranks that write as fast as they are ordered to, through real agents into a whole installation.

Nothing may be lost or doubled (each line has its number), pages must answer meanwhile, and the CPU is beside what
compressing the same bytes costs alone. Then the rate is raised until a step is not held any more.
"""

import json
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from agent.wire.batch import LEVEL

from .figures import Figure, Result
from .procs import Meter, Process, descendants, is_agent, scaled
from .rig import Rig, rig
from .rows import log_of

NODES, PER_NODE = 2, 4
RANKS = NODES * PER_NODE
RATE, SECONDS = 100_000, 20.0  # lines a second of all ranks together
STEPS = (200_000, 400_000, 600_000, 800_000)
STEP_SECONDS = 5.0
QUIET_SECONDS = 15.0  # of looking at pages with nothing else going on: their cost, and their reference
LATE_SECONDS = 2.0  # a rank that was held up longer than this was not served at its rate
DRAIN_SECONDS = 5.0  # and what was written last must be readable so soon
_LINE = re.compile(r"rank (\d+) line (\d+) ")
_END = re.compile(r"rank (\d+) line end after ([\d.]+)")


@dataclass
class Count:
    """What was read back. `wrong` counts lines that are missing, doubled or out of their order."""

    next: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    wrong: int = 0
    gaps: int = 0
    bytes: int = 0

    def take(self, line: dict[str, object]) -> None:
        text = str(line["text"])
        self.bytes += len(text) + 1
        self.gaps += line["is_gap"] is True
        if found := _LINE.match(text):
            rank, number = int(found[1]), int(found[2])
            self.wrong += number != self.next.get(rank, 0)
            self.next[rank] = number + 1
        elif found := _END.match(text):
            self.seconds[int(found[1])] = float(found[2])


@dataclass(frozen=True)
class Flood:
    count: Count
    expected: int  # lines of each rank
    muster_cpu: float
    by_process: dict[str, float]
    parts: dict[str, float]  # CPU seconds by kind of process
    stored: tuple[int, int, int]  # lines, the bytes that they take in files, the rows that name those
    drained_after: float  # seconds from the end of the job's writing to its last line being readable
    waits: list[float]

    @property
    def lost(self) -> int:
        missing = sum(abs(self.expected - self.count.next.get(rank, 0)) for rank in range(RANKS))
        return self.count.wrong + self.count.gaps + missing

    def is_held(self, seconds: float) -> bool:
        late = max(self.count.seconds.values(), default=1e9) - seconds
        return not self.lost and late < LATE_SECONDS and self.drained_after < DRAIN_SECONDS


class Visitor:
    """Somebody who looks at pages ten times a second all the while."""

    PATHS = ("/login", "/readyz", "/jobs")

    def __init__(self, muster: Rig):
        self.muster = muster
        self.waits: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Visitor":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(0.1):
            path = self.PATHS[number % len(self.PATHS)]
            began = time.monotonic()
            request = urllib.request.Request(self.muster.url + path, headers={"Cookie": self.muster.cookie})
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
            self.waits.append(time.monotonic() - began)
            number += 1


def run() -> Result:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, rig(Path(folder) / "installation") as muster:
        assert muster.cookie
        _make_room(muster)
        look, quiet = _quiet(muster)
        first = flood(muster, rate=RATE, seconds=SECONDS)
        _say(RATE, first, SECONDS)
        alone = compress_seconds_per_gb()
        highest = RATE if first.is_held(SECONDS) else 0
        for rate in STEPS if highest else ():
            step = flood(muster, rate=rate, seconds=STEP_SECONDS)
            _say(rate, step, STEP_SECONDS)
            if not step.is_held(STEP_SECONDS):
                break
            highest = rate
    gigabytes = first.count.bytes / 1e9
    # looking at pages is not taking in lines
    parts = {name: max(0.0, cpu - look.get(name, 0.0) * len(first.waits)) for name, cpu in first.parts.items()}
    lines, stored_bytes, rows = first.stored
    return Result(
        "ingest",
        [
            Figure("lost_or_doubled", float(first.lost), "lines", 0.0),
            Figure("web_p99", _p99_ms(first.waits), "ms", 200.0, _p99_ms(quiet)),
            Figure("cpu_per_gb", sum(parts.values()) / gigabytes, "CPU s/GB", 10.0, alone, "ratio"),
            Figure("readable_after_the_last_line", first.drained_after, "s", DRAIN_SECONDS),
            Figure("cpu_per_line", 1e6 * sum(parts.values()) / lines, "CPU µs", parts=scaled(parts, 1e6 / lines)),
            Figure("bytes_per_line", first.count.bytes / lines, "bytes"),
            Figure("stored_bytes_per_line", stored_bytes / lines, "bytes"),
            Figure("rows_per_million_lines", 1e6 * rows / lines, "rows"),
        ],
        {
            "lines_per_second": RATE, "seconds": SECONDS, "gigabytes": round(gigabytes, 3),
            "highest_rate_held_lines_per_second": highest, "looks_at_pages": len(first.waits),
            "web_median_ms": round(1000 * statistics.median(first.waits), 1), "muster_cpu_by_process": first.by_process,
        },
    )  # fmt: skip


def _quiet(muster: Rig) -> tuple[dict[str, float], list[float]]:
    """CPU seconds of one look at a page by kind of process, and how long each took."""
    with Meter(lambda: descendants(muster.pid)) as meter, Visitor(muster) as visitor:
        time.sleep(QUIET_SECONDS)
    return scaled(meter.parts(), 1 / len(visitor.waits)), visitor.waits


def _p99_ms(waits: list[float]) -> float:
    return 1000 * statistics.quantiles(waits, n=100)[98]


def _make_room(muster: Rig) -> None:
    """The first queue has as many slots as this machine has cores; these ranks only write."""
    muster.manage("queue", "default", "--team", "demo", "--slots", str(RANKS))


def flood(muster: Rig, *, rate: int, seconds: float) -> Flood:
    def ours() -> list[Process]:
        return [one for one in descendants(muster.pid) if not _is_training(one)]

    each = rate // RANKS
    with tempfile.TemporaryDirectory() as folder, Meter(ours) as meter, Visitor(muster) as visitor:
        (Path(folder) / "writer.py").write_text(Path(__file__).with_name("writer.py").read_text())
        command = ["torchrun", "writer.py", str(each), str(seconds)]
        job = muster.submit(Path(folder), command, nodes=NODES, nproc=PER_NODE)
        looks = _ends(muster, job, seconds=seconds)
        muster.wait(job)
    count = read_back(muster, job)
    stored = log_of(muster.env["DATABASE_URL"], job)
    return Flood(
        count, int(each * seconds), meter.cpu_seconds(), meter.by_command(), meter.parts(), stored, looks[-1], visitor.waits
    )  # fmt: skip


def _ends(muster: Rig, job: int, *, seconds: float) -> list[float]:
    """Seconds from the moment that a rank wrote its last line to when it can be read here, the shortest first."""
    found: dict[int, float] = {}
    while muster.client.job(job).phase not in ("running", "succeeded", "failed"):
        time.sleep(0.25)
    time.sleep(seconds)  # reading meanwhile would be measured too
    while len(found) < RANKS:
        time.sleep(0.25)
        page = _page(muster, job, "tail=200")
        for line in page["lines"]:
            if (end := _END.match(line["text"])) and int(end[1]) not in found:
                found[int(end[1])] = max(0.0, time.time() - line["at_ms"] / 1000)
        if muster.client.job(job).is_finished:
            break
    return sorted(found.values()) or [1e9]


def read_back(muster: Rig, job: int) -> Count:
    count, cursor, is_complete = Count(), "", False
    while not is_complete:
        page = _page(muster, job, f"limit=10000&cursor={cursor}")
        for line in page["lines"]:
            count.take(line)
        cursor, is_complete = page["cursor"], page["is_complete"]
    return count


def _page(muster: Rig, job: int, query: str) -> dict:
    url = f"{muster.url}/api/v1/jobs/{job}/logs?{query}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {muster.token}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def compress_seconds_per_gb() -> float:
    """CPU of compressing such lines alone, at the agents' level and in pieces as large as theirs."""
    text = b"".join(
        b"1763700000123 rank 3 line %d loss 1.%06d lr 5.%03de-04 grad_norm 0.%04d tokens/s %d.5\n"
        % (n, n * 7919 % 1000000, n * 31 % 1000, n * 61 % 10000, n * 97 % 100000)
        for n in range(500_000)
    )
    began = time.process_time()
    for at in range(0, len(text), 1 << 18):
        zlib.compress(text[at : at + (1 << 18)], LEVEL)
    return (time.process_time() - began) / (len(text) / 1e9)


def _is_training(one: Process) -> bool:
    return "writer.py" in one.command and not is_agent(one.command) and "rank-python" not in one.command


def _say(rate: int, flood: Flood, seconds: float) -> None:
    late = max(flood.count.seconds.values(), default=float("nan")) - seconds
    print(
        f"{rate} lines/s: lost {flood.lost}, writers late by {late:.1f} s, readable {flood.drained_after:.1f} s after, "
        f"p99 {_p99_ms(flood.waits):.0f} ms, {flood.muster_cpu:.1f} CPU s for {flood.count.bytes / 1e6:.0f} MB {flood.by_process}",
        file=sys.stderr,
        flush=True,
    )
