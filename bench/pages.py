"""The page of a job with 1,024 and with 10,000 ranks and an hour of five series, and a quiet page of 16 ranks.

The rows are loaded through ingest and rolled up by the code of the task. Pages are asked for over HTTP by one signed-in
reader, compressed as a browser asks for them. Other pages are timed alone and while four job pages are open. A quiet page is
open in Chromium for two minutes between two without it: bytes as its network reports them, CPU of the web process beyond
that of the minutes without.
"""

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from .figures import Figure, Result
from .procs import Meter, descendants, scaled
from .rig import ROOT, Rig, rig

SIZES = (1024, 10_000)
LOOKS, OPEN_PAGES = 20, 4
MINUTE = 60.0
PARTS = {"charts": 5.0, "ranks": 2.5}  # seconds between two requests of an open page, as in static/live.js


def run() -> Result:
    figures, notes = list[Figure](), dict[str, object]()
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, rig(Path(folder) / "installation") as muster:
        for ranks in SIZES:
            seeded = _seed(muster, ranks)
            page = f"/jobs/{seeded['job']}"
            notes[f"seed_{ranks}"] = seeded
            notes[f"cold_{ranks}_ms"] = _cold(muster, page)
            whole, charts, live = (_looks(muster, page, part=part) for part in ("", "charts", "ranks"))
            figures += [
                Figure(f"job_page_{ranks}", whole.ms, "ms", 150.0), Figure(f"job_page_{ranks}_size", whole.kb, "KB", 100.0),
                Figure(f"charts_{ranks}", charts.ms, "ms", 60.0), Figure(f"ranks_update_{ranks}", live.kb, "KB", 20.0),
                Figure(f"ranks_update_{ranks}_time", live.ms, "ms"),
                Figure(f"job_page_{ranks}_cpu", whole.cpu, "CPU ms", parts=whole.parts),
                Figure(f"charts_{ranks}_cpu", charts.cpu, "CPU ms", parts=charts.parts),
                Figure(f"ranks_update_{ranks}_cpu", live.cpu, "CPU ms", parts=live.parts),
            ]  # fmt: skip
            figures += _points(seeded, ranks)
            notes[f"charts_{ranks}_kb"] = round(charts.kb, 1)
        alone = _p95(muster, "/jobs")
        with _opened(muster, page):
            beside = _p95(muster, "/jobs")
        figures.append(Figure("other_pages_p95", beside, "ms", 1.5, reference=alone, bound_on="ratio"))
        figures += _quiet(muster)
    return Result("pages", figures, notes)


def _seed(muster: Rig, ranks: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "bench.pages_seed", str(ranks)]
    with Meter(lambda: descendants(muster.pid)) as meter:
        done = subprocess.run(words, env=muster.env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    found["installation_cpu_s"] = {name: round(seconds, 2) for name, seconds in meter.parts().items()}
    print(f"{ranks} ranks: {found}", flush=True)
    return found


def _points(seeded: dict[str, Any], ranks: int) -> list[Figure]:
    """What a point of a series costs. The seeding process takes them in, as `web` does, and helps `tasks` to roll them up."""
    points, cpu = seeded["points"], dict[str, float](seeded["installation_cpu_s"])
    cpu["web"] = cpu.get("web", 0.0) + seeded["load_cpu_s"]
    cpu["tasks"] = cpu.get("tasks", 0.0) + seeded["rolling_up_cpu_s"]
    parts = scaled(cpu, 1e6 / points)
    return [
        Figure(f"point_{ranks}_cpu", sum(parts.values()), "CPU µs", parts=parts),
        Figure(f"point_{ranks}_stored", seeded["chunk_bytes"] / points, "bytes"),
        Figure(f"points_per_second_{ranks}", seeded["points_per_s"], "points/s"),
    ]


def _cold(muster: Rig, page: str) -> float:
    """The first look after the kernel's cache of files was dropped; Postgres' own buffers hold a few percent of the data."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return -1.0
    return round(1000 * _ask(muster, page)[0], 1)


@dataclass(frozen=True)
class Looks:
    """Medians of time and size; CPU milliseconds of a look by kind of process."""

    ms: float
    kb: float
    parts: dict[str, float]

    @property
    def cpu(self) -> float:
        return sum(self.parts.values())


def _looks(muster: Rig, page: str, part: str = "") -> Looks:
    for _ in range(3):
        _ask(muster, page, part)
    with Meter(lambda: descendants(muster.pid)) as meter:
        found = [_ask(muster, page, part) for _ in range(LOOKS)]
    ms, size = (statistics.median(column) for column in zip(*found, strict=True))
    return Looks(1000 * ms, size / 1000, scaled(meter.parts(), 1000 / LOOKS))


def _ask(muster: Rig, page: str, part: str = "") -> tuple[float, int]:
    headers = {"Cookie": muster.cookie, "Accept-Encoding": "gzip"}
    headers |= {"HX-Request": "true", "HX-Target": f"section#{part}"} if part else {}
    began = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(muster.url + page, headers=headers), timeout=120) as answer:
        body: bytes = answer.read()
        taken = time.perf_counter() - began
        text = gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
    assert b"<section" in text, "not the page that was asked for"
    return taken, len(body)


def _p95(muster: Rig, page: str) -> float:
    return 1000 * statistics.quantiles([_ask(muster, page)[0] for _ in range(80)], n=20)[-1]


@contextmanager
def _opened(muster: Rig, page: str) -> Iterator[None]:
    """Keep some job pages open, each asking for its parts as often as a live one may."""
    over = threading.Event()

    def read(part: str, every: float) -> None:
        while not over.wait(every):
            _ask(muster, page, part)

    readers = [
        threading.Thread(target=read, args=pair, daemon=True) for pair in PARTS.items() for _ in range(OPEN_PAGES)
    ]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        over.set()
        for reader in readers:
            reader.join()


def _quiet(muster: Rig) -> list[Figure]:
    """A job of 16 ranks that print nothing, its page open for a minute in Chromium."""
    with tempfile.TemporaryDirectory() as code:
        (Path(code) / "quiet.py").write_text("import time\nwhile True:\n    time.sleep(60)\n")
        muster.manage("queue", "default", "--team", "demo", "--slots", "20000")
        job = muster.client.submit(
            "python3 quiet.py", queue="default", directory=code, framework="plain", nodes=16, nproc_per_node=1
        )  # fmt: skip
    give_up = time.monotonic() + 300
    while muster.client.job(job.id).ranks.running < 16:
        if time.monotonic() > give_up:
            raise RuntimeError(f"job {job.id} does not run: {muster.client.job(job.id).message}")
        time.sleep(0.5)
    time.sleep(20)
    received, alone, open_ = 0, 0.0, 0.0

    def count(event: dict[str, float]) -> None:
        nonlocal received
        received += int(event["encodedDataLength"])

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        context = browser.new_context()
        context.add_cookies(muster.browser_cookies)
        for is_open in (False, True, True, False):  # agents keep sending meanwhile, in all four
            page = context.new_page()
            if is_open:
                page.goto(f"{muster.url}/jobs/{job.id}")
                page.wait_for_timeout(5000)
                network = context.new_cdp_session(page)
                network.send("Network.enable")
                network.on("Network.dataReceived", count)
            before, began = _web_cpu(muster), time.monotonic()
            while time.monotonic() < began + MINUTE:
                page.wait_for_timeout(1000)
            spent = _web_cpu(muster) - before
            alone, open_ = (alone, open_ + spent) if is_open else (alone + spent, open_)
            page.close()
        browser.close()
    muster.client.cancel(job.id)
    page_ms = 1000 * (open_ - alone) / 2
    return [
        Figure("quiet_page_bytes", received / 2 / 1000, "KB/min", 60.0),
        Figure("quiet_page_cpu", page_ms, "CPU ms/min", 50.0, parts={"web": page_ms}),
    ]


def _web_cpu(muster: Rig) -> float:
    """Seconds of CPU of the web process since its start, in steps of 0.01."""
    used = psutil.Process(muster.installation.pids["web"]).cpu_times()
    return used.user + used.system
