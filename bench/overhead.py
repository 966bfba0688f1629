"""The sample job through Muster beside plain torchrun: same script, arguments, data and seed, in ABBA order.

On Muster's side a job page and `muster logs -f` are open: the page as its requests (the stream of hints, and each
fragment when its hint comes), because a browser's own work is not Muster's.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from embedded.ports import free_port

from .figures import Figure, Result
from .procs import Meter, Process, descendants, is_agent
from .rig import Rig, rig

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5
NODES, PER_NODE = 2, 2
ARGUMENTS = ("--epochs", "100", "--save-every", "200", "--seed", "7")  # 30 to 60 s of training on two cores


@dataclass(frozen=True)
class Run:
    """Seconds from the command to the first rank, seconds of training; CPU seconds of the training (ranks and, on Muster's
    side, their launchers) and of Muster (agents, shims, web, tasks, beat, watcher, Postgres, Redis)."""

    to_first_rank: float
    training: float
    training_cpu: float
    muster_cpu: float = 0.0


def run() -> Result:
    plain: list[Run] = []
    ours: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, rig(Path(folder) / "installation") as muster:
        Path(folder).chmod(0o711)  # under root jobs run as another user, who writes below it
        code = _code(Path(folder) / "code")
        profile: dict[str, float] = {}
        assert muster.cookie
        for number in range(ROUNDS):
            sides = ["plain", "muster"] if number % 2 == 0 else ["muster", "plain"]
            for side in sides:
                out = Path(folder) / f"{side}-{number}"
                out.mkdir()
                out.chmod(0o777)
                if side == "plain":
                    plain.append(_plain(code, out))
                else:
                    ours.append(_muster(muster, code, out, profile=profile))
                print(f"{side} {number + 1}: {(plain if side == 'plain' else ours)[-1]}", file=sys.stderr, flush=True)
    return Result("overhead", _figures(plain, ours), {"muster_cpu_by_process": profile, "rounds": ROUNDS})


def _figures(plain: list[Run], ours: list[Run]) -> list[Figure]:
    def median(runs: list[Run], name: str) -> float:
        return statistics.median(getattr(one, name) for one in runs)

    return [
        Figure("training_time", median(ours, "training"), "s", 1.05, median(plain, "training"), "ratio"),
        Figure("muster_cpu", median(ours, "muster_cpu"), "CPU s", 0.05, median(ours, "training_cpu"), "ratio"),
        Figure(
            "first_rank_later_than_plain",
            median(ours, "to_first_rank") - median(plain, "to_first_rank"),
            "s",
            2.0,
            median(plain, "to_first_rank"),
        ),
    ]


def _code(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(ROOT / "examples/ddp_digits.py", folder)
    shutil.copy(ROOT / "bench/timed.py", folder)
    return folder


def _read(out: Path, began: float) -> Run:
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(NODES * PER_NODE)]
    first = min(rank["began"] for rank in ranks)
    return Run(first - began, max(rank["ended"] for rank in ranks) - first, sum(rank["cpu"] for rank in ranks))


def _plain(code: Path, out: Path) -> Run:
    port = free_port()
    shared = out / "checkpoints"
    began = time.time()
    launches = []
    for node in range(NODES):
        env = {
            **os.environ, "PET_NNODES": str(NODES), "PET_NPROC_PER_NODE": str(PER_NODE), "PET_NODE_RANK": str(node),
            "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port), "PET_MAX_RESTARTS": "0", "GLOO_SOCKET_IFNAME": "lo",
            "TIMED_FOLDER": str(out), "MUSTER_CHECKPOINTS": str(shared),
        }  # fmt: skip
        command = [sys.executable, "-m", "torch.distributed.run", "timed.py", "ddp_digits.py", *ARGUMENTS]
        launches.append(
            subprocess.Popen(command, cwd=code, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
    codes = [launch.wait() for launch in launches]
    if any(codes):
        raise RuntimeError("plain torchrun failed")
    return _read(out, began)


def _muster(muster: Rig, code: Path, out: Path, *, profile: dict[str, float]) -> Run:
    def ours() -> list[Process]:
        """Everything below the supervisor but the training: agents and shims are ours, launchers and ranks not."""
        return [one for one in descendants(muster.pid) if not is_training(one)]

    def training() -> list[Process]:
        return [one for one in descendants(muster.pid) if is_training(one)]

    with Meter(ours) as meter, Meter(training) as trained:
        began = time.time()
        command = ["torchrun", "timed.py", "ddp_digits.py", *ARGUMENTS]
        job = muster.submit(code, command, nodes=NODES, nproc=PER_NODE, env={"TIMED_FOLDER": str(out)})
        with muster.watchers(job):
            _await_ranks(muster, job, out)
        muster.wait(job)
    profile.clear()
    profile.update(meter.by_command())
    timed = _read(out, began)
    return Run(timed.to_first_rank, timed.training, trained.cpu_seconds(), meter.cpu_seconds())


def _await_ranks(muster: Rig, job: int, out: Path) -> None:
    """By their files and not by asking Muster, whose cost this would be; only a long silence is worth a question."""
    asked = time.monotonic()
    while len(list(out.glob("*.json"))) < NODES * PER_NODE:
        time.sleep(0.2)
        if time.monotonic() - asked > 120:
            asked = time.monotonic()
            if muster.client.job(job).is_finished:
                muster.wait(job)  # raises with the reason


def is_training(one: Process) -> bool:
    """A launcher or a rank; not the shim between them, nor the agent above."""
    return "timed.py" in one.command and not is_agent(one.command) and "rank-python" not in one.command
