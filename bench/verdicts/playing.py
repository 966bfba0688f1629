"""Submits cases to an installation, a few at a time, and watches what the API says of each until nothing more can change."""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.client import Client
from muster.jobs.models import Job

from ..rig import Rig
from .cases import NODES, PROCESSES, Case
from .score import Played
from .scripted import CASE

LOCAL_QUEUE, SCRIPTED_QUEUE = "default", "scripted"
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 600.0
SETTLE_SECONDS = 6.0  # after an attempt that is followed by another: longer than a verdict may take
EXCERPT_LINES = 8
_WATCHED = ("rank", "replica", "kind", "headline", "certainty")


@dataclass
class Watched:
    """The last verdict that the API gave of the first attempt, and since when it says just this."""

    verdict: Mapping[str, Any] | None = None
    since: float | None = None

    def note(self, verdict: Mapping[str, Any] | None, *, at: float) -> None:
        if verdict is None:
            return
        if self.verdict is None or any(verdict.get(key) != self.verdict.get(key) for key in _WATCHED):
            self.since = at
        self.verdict = verdict


def clusters(folder: Path) -> str:
    """The setting that adds the scripted cluster to the local one."""
    options = {"FOLDER": str(folder)}
    return json.dumps({"scripted": {"BACKEND": "bench.verdicts.scripted.ScriptedCluster", "OPTIONS": options}})


def play(
    muster: Rig, cases: Iterable[Case], *, scripts: Path, at_once: int, on_played: Callable[[Played], None]
) -> list[Played]:
    """`scripts` is the scripted cluster's folder; `on_played` is called with each case once it was played."""
    muster.manage("queue", LOCAL_QUEUE, "--team", "demo", "--slots", str(at_once * NODES * PROCESSES))
    muster.manage("queue", SCRIPTED_QUEUE, "--team", "demo", "--slots", "1000", "--cluster", "scripted")

    def one(case: Case) -> Played:
        played = _play(Client(muster.url, muster.token), case, scripts=scripts)
        on_played(played)
        return played

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, cases))


def _play(client: Client, case: Case, *, scripts: Path) -> Played:
    job = _submit(client, case)
    watched, until = Watched(), time.monotonic() + PATIENCE_SECONDS
    over_at: float | None = None
    trouble = ""
    while True:
        seen = client.job(job.id)
        verdict = seen.raw.get("first_failure") if seen.attempt == 1 else _of_first_attempt(client, job)
        watched.note(verdict, at=time.time())
        if seen.is_finished:
            break
        if over_at is None and _is_first_attempt_over(seen):
            over_at = time.monotonic()
        if over_at is not None and time.monotonic() > over_at + SETTLE_SECONDS:
            break
        if time.monotonic() > until:
            trouble = f"the job is {seen.phase} after {PATIENCE_SECONDS:.0f} s: {seen.message}"
            break
        time.sleep(POLL_SECONDS)
    if watched.verdict is None:
        watched.note(_of_first_attempt(client, job), at=time.time())
    proven = _proven_at(client, case, job, scripts=scripts)
    if not seen.is_finished:
        client.cancel(job.id)
    if seen.phase == "succeeded":
        trouble = "the job succeeded"
    seconds = None if watched.since is None or proven is None else max(0.0, watched.since - proven)
    excerpt = _excerpt(client, case, job, blamed=(watched.verdict or {}).get("rank"))
    return Played(case, watched.verdict, seconds, excerpt, trouble)


def _submit(client: Client, case: Case) -> Job:
    asked: dict[str, Any] = {
        "name": case.name.replace("_", "-")[:48],
        "nodes": NODES,
        "max_retries": 0,
        "deadline_seconds": case.deadline_seconds,
        "start_timeout_seconds": case.start_timeout_seconds,
    }
    if case.is_of_cluster:
        return client.submit(
            ["sh", "-c", "true"], queue=SCRIPTED_QUEUE, directory=None, nproc_per_node=1, env={CASE: case.name}, **asked
        )
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        for name, path in case.files.items():
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        command = ["torchrun", "train.py", *case.arguments]
        env = {"OMP_NUM_THREADS": "1"}  # several ranks share few cores
        return client.submit(command, queue=LOCAL_QUEUE, directory=folder, nproc_per_node=PROCESSES, env=env, **asked)


def _is_first_attempt_over(seen: Job) -> bool:
    """A start that took too long is no end of the job: it is queued again and gets another attempt."""
    return seen.attempt > 1 or (seen.attempt == 1 and seen.phase in ("queued", "admitted", "suspended"))


def _of_first_attempt(client: Client, job: Job) -> Mapping[str, Any] | None:
    """Where a job that goes on shows its earlier attempts' own verdicts."""
    for one in client.attempts(job.id):
        if one.attempt == 1:
            return one.raw.get("first_failure")
    return None


def _proven_at(client: Client, case: Case, job: Job, *, scripts: Path) -> float | None:
    """When the verdict could be known, in seconds since the epoch: the end of the first rank or replica that failed by itself.

    Where nothing failed by itself (a deadline, a start that takes too long) it is the step that ended the attempt.
    """
    ends = [step.after_seconds for step in case.pods if step.status.get("phase", "Pending") != "Pending"]
    if ends:
        (script,) = (json.loads(path.read_text()) for path in scripts.glob(f"{job.id}-*.1.json"))
        return float(script["created"]) + min(ends)
    ranks = client.ranks(job.id, attempt=1) if case.label.ranks else []
    times = [one.ended_at for one in ranks if one.state == "failed" and one.ended_at and not one.raw.get("is_stopped")]
    if not times:
        times = [event.at for event in client.events(job.id) if event.kind == "step" and event.phase == "stopping"]
    return min(times).timestamp() if times else None


def _excerpt(client: Client, case: Case, job: Job, *, blamed: int | None) -> tuple[str, ...]:
    """The end of what the rank wrote that failed first, as the label or else the verdict has it."""
    if not case.label.ranks:
        return tuple(event.message for event in client.events(job.id))[-EXCERPT_LINES:]
    rank = blamed if blamed in case.label.ranks else case.label.ranks[0]
    lines = client.logs(job.id, rank=rank, attempt=1, tail=EXCERPT_LINES)
    return tuple(line.text for line in lines)
