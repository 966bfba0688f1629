"""Jobs that succeed although something in them looks like a failure (successes.yaml): none of them may fail."""

import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from muster.client import Client

from ..rig import Rig
from .playing import LOCAL_QUEUE, PATIENCE_SECONDS, POLL_SECONDS

FILE = Path(__file__).with_name("successes.yaml")
SLOTS = 4  # the most that one of them takes
EXCERPT_LINES = 12


@dataclass(frozen=True)
class Success:
    """A job that has to succeed. `files`: their text by name; `fields`: further fields of the job."""

    name: str
    command: tuple[str, ...]
    files: Mapping[str, str]
    nodes: int = 1
    nproc: int = 2
    framework: str = "torchrun"
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How one ended: the phase, what the API says of a failure, and the end of its log."""

    name: str
    phase: str
    message: str = ""
    excerpt: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        return self.phase == "succeeded"


def successes(path: Path = FILE) -> list[Success]:
    """All of them, by name. Raises TypeError for an unknown key."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    common = found["files"]
    return [
        Success(**{**job, "name": name, "command": tuple(job["command"]), "files": {**common, **job.get("files", {})}})
        for name, job in sorted(found["jobs"].items())
    ]


def play(muster: Rig, wanted: Iterable[Success], *, at_once: int) -> list[Ended]:
    """Run them, so many at a time, and print how each ended."""
    muster.manage("queue", LOCAL_QUEUE, "--team", "demo", "--slots", str(at_once * SLOTS))

    def one(job: Success) -> Ended:
        ended = _play(Client(muster.url, muster.token), job)
        print(f"{job.name:44} {ended.phase:10} {'right' if ended.is_right else ended.message}", flush=True)
        if not ended.is_right:
            print("\n".join(f"    | {line[:200]}" for line in ended.excerpt), flush=True)
        return ended

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, wanted))


def _play(client: Client, job: Success) -> Ended:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        for name, text in job.files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        submitted = client.submit(
            job.command, queue=LOCAL_QUEUE, directory=folder, nodes=job.nodes, nproc_per_node=job.nproc, max_retries=0,
            framework=job.framework, name=job.name.replace("_", "-")[:48], fields=dict(job.fields),
        )  # fmt: skip
    until = time.monotonic() + PATIENCE_SECONDS
    while not (seen := client.job(submitted.id)).is_finished:
        if time.monotonic() > until:
            client.cancel(submitted.id)
            return Ended(job.name, seen.phase, f"not ended after {PATIENCE_SECONDS:.0f} s: {seen.message}")
        time.sleep(POLL_SECONDS)
    lines = () if seen.phase == "succeeded" else client.logs(submitted.id, tail=EXCERPT_LINES)
    return Ended(job.name, seen.phase, seen.message, tuple(line.text for line in lines))
