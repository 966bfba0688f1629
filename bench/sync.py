"""One changed file among 10,000: the bytes that are sent, and the time from the edit to the file in every replica.

Beside it `rsync -a` of the same tree into as many folders: once into copies of the tree as it was before the edit, and once into
empty ones, which is what a replica's folder is when its job starts. Muster's time includes everything that a job is: submission,
admission, the agents' start. rsync's is the copy alone.
"""

import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from muster.client import Client

from .counting import Counter, counting
from .figures import Figure, Result
from .rig import Rig, rig

FILES, PER_FOLDER = 10_000, 100
REPLICAS = 2
ROUNDS = 5
CHANGED = "package42/module04242.py"
CHANGED_BYTES = 2000
PATIENCE_SECONDS = 120
# Each replica says when it found the words of this round in its own file.
LOOK = 'grep -q "$SYNC_WORDS" "$SYNC_FILE" && date +%s.%N > "$SYNC_FOLDER/.$MUSTER_REPLICA" && mv "$SYNC_FOLDER/.$MUSTER_REPLICA" "$SYNC_FOLDER/$MUSTER_REPLICA"'


@dataclass(frozen=True)
class Round:
    sent_bytes: int
    submit_seconds: float
    seconds: float  # from the edit until the last replica has it


def run() -> Result:
    if shutil.which("rsync") is None:
        raise SystemExit("bench sync needs rsync as its reference: apt-get install rsync")
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, rig(Path(name) / "installation") as muster:
        Path(name).chmod(0o711)  # under root jobs run as another user, who writes below it
        folder = Path(name)
        tree = _tree(folder / "tree")
        os.environ["MUSTER_CACHE"] = str(folder / "cache")
        with counting(muster.url) as counter, Client(counter.url, muster.token) as client:
            first = _round(muster, client, counter, tree=tree, out=folder / "first")
            rounds = [
                _round(muster, client, counter, tree=tree, out=folder / f"round-{number}") for number in range(ROUNDS)
            ]
        warm, fresh = _rsync(tree, folder / "copies")
    return _result(first, rounds, warm, fresh=fresh)


def _result(first: Round, rounds: list[Round], warm: list[Round], *, fresh: list[Round]) -> Result:
    def median(some: list[Round], name: str) -> float:
        return float(statistics.median(getattr(one, name) for one in some))

    # The file itself hardly shrinks; everything beside it shall stay below two kilobytes.
    sent = Figure("bytes_sent", median(rounds, "sent_bytes"), "B", CHANGED_BYTES + 2000, median(warm, "sent_bytes"))
    took = Figure("edit_to_replicas", median(rounds, "seconds"), "s", 5.0, median(fresh, "seconds"))
    notes = {
        "files": FILES,
        "replicas": REPLICAS,
        "rounds": ROUNDS,
        "changed_file_bytes": CHANGED_BYTES,
        "submit_seconds": round(median(rounds, "submit_seconds"), 3),
        "first_time": {"bytes_sent": first.sent_bytes, "seconds": round(first.seconds, 2)},
        "rsync_into_old_copies_seconds": round(median(warm, "seconds"), 3),
        "rsync_into_empty_folders_seconds": round(median(fresh, "seconds"), 3),
        "rsync_into_empty_folders_bytes": median(fresh, "sent_bytes"),
    }
    return Result("sync", [sent, took], notes)


def _tree(folder: Path) -> Path:
    for number in range(FILES):
        path = folder / f"package{number // PER_FOLDER:02}" / f"module{number:05}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"VALUE = {number}\n" * 40)
    time.sleep(2.5)  # a client trusts no file that was written a moment ago (client/muster/code/memory.py)
    return folder


def _edit(tree: Path) -> str:
    """New content that does not shrink; returns words that are in it."""
    words = os.urandom(CHANGED_BYTES // 2).hex()
    (tree / CHANGED).write_text(words)
    return words[:40]


def _round(muster: Rig, client: Client, counter: Counter, *, tree: Path, out: Path) -> Round:
    out.mkdir()
    out.chmod(0o777)
    counter.since()
    began = time.time()
    words = _edit(tree)
    env = {"SYNC_WORDS": words, "SYNC_FILE": CHANGED, "SYNC_FOLDER": str(out)}
    job = client.submit(["sh", "-c", LOOK], queue="default", directory=tree, nodes=REPLICAS, nproc_per_node=1, env=env)
    submitted, sent = time.time(), counter.since()
    while len(list(out.glob("worker-*"))) < REPLICAS:
        if time.time() > began + PATIENCE_SECONDS:
            raise RuntimeError(f"job {job.id} did not find the file: {muster.client.job(job.id).message}")
        time.sleep(0.02)
    arrived = max(float(path.read_text()) for path in out.glob("worker-*"))
    muster.wait(job.id)
    return Round(sent, submitted - began, arrived - began)


def _rsync(tree: Path, copies: Path) -> tuple[list[Round], list[Round]]:
    """(into copies of the tree before the edit, into empty folders)."""
    warm, fresh = [], []
    old = [copies / f"old-{number}" for number in range(REPLICAS)]
    _copy(tree, old)
    for number in range(ROUNDS):
        _edit(tree)
        warm.append(_copy(tree, old))
        fresh.append(_copy(tree, [copies / f"new-{number}-{replica}" for replica in range(REPLICAS)]))
    return warm, fresh


def _copy(tree: Path, into: list[Path]) -> Round:
    began, sent = time.time(), 0
    for folder in into:
        folder.mkdir(parents=True, exist_ok=True)
        finished = subprocess.run(
            ["rsync", "-a", "--stats", f"{tree}/", f"{folder}/"], capture_output=True, text=True, check=True
        )
        match = re.search(r"Total bytes sent: ([\d,.]+)", finished.stdout)
        sent += int(re.sub(r"\D", "", match[1])) if match else 0
    seconds = time.time() - began
    return Round(sent, seconds, seconds)
