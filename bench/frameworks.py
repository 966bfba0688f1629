"""From submit to the first line of the user's own function on the last rank, for each framework, beside its bare launch by hand.

Both sides run the same script with the same imports on two replicas with two ranks each, in ABBA order. By hand means
what a person would type on one machine; the commands' own waiting is a part of it.
"""

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from common.machine.process_environ import environs
from embedded.ports import free_port
from jobs.frameworks.monarch import BOOTSTRAP

from .figures import Figure, Result
from .rig import Rig, rig

ROUNDS = 5
REPLICAS, PROCESSES = 2, 2
RANKS = REPLICAS * PROCESSES
BOUND_SECONDS = 1.5  # later than by hand
PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 0.01
SCRIPTS = Path(__file__).with_name("first_line")
MARK = "FIRST_LINE_MARK"
BIN = Path(sys.executable).parent
# What is submitted: the command, and the counts of the job.
SUBMITTED: dict[str, tuple[list[str], dict[str, int]]] = {
    "plain": (["python3", "plain_rank.py"], {"nodes": RANKS, "nproc_per_node": 1}),
    "torchrun": (["torchrun", "torchrun_rank.py"], {"nodes": REPLICAS, "nproc_per_node": PROCESSES}),
    "ray": (["python3", "ray_driver.py", str(RANKS)], {"nodes": REPLICAS, "nproc_per_node": PROCESSES}),
    "monarch": (
        ["python3", "monarch_controller.py", str(REPLICAS), str(PROCESSES)],
        {"nodes": REPLICAS, "nproc_per_node": PROCESSES},
    ),
}


def run() -> Result:
    names = os.environ.get("MUSTER_BENCH_FRAMEWORKS", ",".join(SUBMITTED)).split(",")
    ours: dict[str, list[float]] = {name: [] for name in names}
    bare: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, rig(Path(name) / "installation") as muster:
        folder = Path(name)
        folder.chmod(0o711)  # under root jobs run as another user, who writes below it
        code = folder / "code"
        shutil.copytree(SCRIPTS, code, ignore=shutil.ignore_patterns("__pycache__"))
        for framework in names:
            for number in range(-1, ROUNDS):  # the first pair is not counted: caches of files
                sides = [(ours, _submitted), (bare, _by_hand)]
                for found, side in sides if number % 2 == 0 else reversed(sides):
                    out = folder / uuid.uuid4().hex
                    out.mkdir()
                    out.chmod(0o777)
                    seconds = side(muster, framework, code, out=out)
                    if number >= 0:
                        found[framework].append(seconds)
                print(f"{framework} {number + 1}: {ours[framework]} {bare[framework]}", file=sys.stderr, flush=True)
    return Result(
        "frameworks", [_figure(name, ours[name], bare[name]) for name in names], {"seconds": ours, "by_hand": bare}
    )


def _figure(framework: str, ours: list[float], bare: list[float]) -> Figure:
    later = statistics.median(one - other for one, other in zip(ours, bare, strict=True))
    return Figure(f"{framework}_later_than_by_hand", later, "s", BOUND_SECONDS, statistics.median(bare))


def _submitted(muster: Rig, framework: str, code: Path, *, out: Path) -> float:
    command, counts = SUBMITTED[framework]
    began = time.time()
    job = muster.client.submit(
        command, queue="default", directory=code, framework=framework, env={"FIRST_LINE_FOLDER": str(out)}, **counts
    )
    found = _await_last(out, ended=lambda: muster.client.job(job.id).is_finished)
    muster.wait(job.id)
    return found - began


def _by_hand(_: Rig, framework: str, code: Path, *, out: Path) -> float:
    launches: list[subprocess.Popen[bytes]] = []
    with _cleared_up(out) as env:
        began = time.time()
        launches += _LAUNCHES[framework](code, out, env)
        found = _await_last(out, ended=lambda: all(one.poll() is not None for one in launches))
        if launches[-1].wait():
            raise RuntimeError(f"{framework} by hand failed; its output is in {out}")
    return found - began


def _await_last(out: Path, *, ended: Callable[[], bool]) -> float:
    """Return when the last rank was there. Only a long silence is worth a question to whatever runs them."""
    end = time.monotonic() + PATIENCE_SECONDS
    asked = time.monotonic()
    while not all((out / str(rank)).exists() for rank in range(RANKS)):
        time.sleep(LOOK_SECONDS)
        if time.monotonic() - asked > 20:
            asked = time.monotonic()
            if ended() or asked > end:
                raise RuntimeError(f"not all of {RANKS} ranks ran: {sorted(one.name for one in out.iterdir())}")
    return max(float((out / str(rank)).read_text()) for rank in range(RANKS))


@contextlib.contextmanager
def _cleared_up(out: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a launch by hand; end what it left, daemons too, at the end."""
    mark, folder = uuid.uuid4().hex, tempfile.mkdtemp(prefix="first-")
    env = {
        **os.environ, MARK: mark, "FIRST_LINE_FOLDER": str(out), "PATH": f"{BIN}:{os.environ['PATH']}",
        "GLOO_SOCKET_IFNAME": "lo", "RAY_USAGE_STATS_ENABLED": "0", "RAY_FOLDER": folder,
        "RAY_AUTH_MODE": "disabled",  # whatever token lies in the home folder
    }  # fmt: skip
    try:
        yield env
    finally:
        marked = f"\0{MARK}={mark}\0".encode()
        for pid in [pid for pid, environ in environs() if marked in environ]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _start(code: Path, out: Path, env: Mapping[str, str], *words: str) -> "subprocess.Popen[bytes]":
    with open(out / "output", "ab") as output:
        return subprocess.Popen(words, cwd=code, env=env, stdout=output, stderr=subprocess.STDOUT)


def _plain(code: Path, out: Path, env: Mapping[str, str]) -> list["subprocess.Popen[bytes]"]:
    return [_start(code, out, {**env, "RANK": str(rank)}, "python3", "plain_rank.py") for rank in range(RANKS)]


def _torchrun(code: Path, out: Path, env: Mapping[str, str]) -> list["subprocess.Popen[bytes]"]:
    port = free_port()
    return [
        _start(
            code, out, env, "torchrun", f"--nnodes={REPLICAS}", f"--nproc-per-node={PROCESSES}", f"--node-rank={node}",
            "--master-addr=127.0.0.1", f"--master-port={port}", "torchrun_rank.py",
        )
        for node in range(REPLICAS)
    ]  # fmt: skip


def _ray(code: Path, out: Path, env: Mapping[str, str]) -> list["subprocess.Popen[bytes]"]:
    """Start the head, then the workers at the same time, then the driver: each command returns when its node is up.

    Nodes of one machine need addresses and folders of their own: else `ray start` times out.
    """
    # An address that no job of Muster's has: its servers share ports where they can (SO_REUSEPORT).
    network = f"127.0.{os.getpid() % 250 + 1}"
    address = f"{network}.1:{free_port(f'{network}.1')}"

    def node(number: int, *words: str) -> "subprocess.Popen[bytes]":
        shape = [f"--node-ip-address={network}.{number + 1}", "--min-worker-port=0", "--max-worker-port=0"]
        folder = f"{env['RAY_FOLDER']}/{number}"  # short: it holds sockets
        return _start(code, out, env, "ray", "start", *words, *shape, f"--temp-dir={folder}")

    port = address.rpartition(":")[2]
    _finished(node(0, "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"), out)
    joining = [f"--address={address}", f"--num-cpus={PROCESSES}"]
    for worker in [node(number, *joining) for number in range(1, REPLICAS + 1)]:
        _finished(worker, out)
    return [_start(code, out, {**env, "RAY_ADDRESS": address}, "python3", "ray_driver.py", str(RANKS))]


def _monarch(code: Path, out: Path, env: Mapping[str, str]) -> list["subprocess.Popen[bytes]"]:
    addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(REPLICAS)]
    for address in addresses:
        variables = {**env, "MONARCH_PORT": "0", "MUSTER_MONARCH_ADDRESS": f"{address}@{address}"}
        _start(code, out, variables, "python3", "-u", "-c", BOOTSTRAP)
    variables = {**env, "FIRST_LINE_HOSTS": " ".join(addresses)}
    return [_start(code, out, variables, "python3", "monarch_controller.py", str(REPLICAS), str(PROCESSES))]


def _finished(launch: "subprocess.Popen[bytes]", out: Path) -> None:
    if launch.wait():
        raise RuntimeError(f"a command by hand failed: {(out / 'output').read_text()[-2000:]}")


_LAUNCHES = {"plain": _plain, "torchrun": _torchrun, "ray": _ray, "monarch": _monarch}
