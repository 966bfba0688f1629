"""The program around a Ray node: `--ray-head DRIVER...` or `--ray-worker`, run by the agent.

The head's own processes and a worker's are in sessions of their own: a stop is sent to the driver first, which may still
need its cluster to save a checkpoint. The agent kills what is left of a replica once this program has ended.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import List, Optional

from . import interpreters

# Not imported here: running a module that its own package imports is warned of.
_BESIDE, _STARTS = f"{__package__}.ray_cluster", f"{__package__}.ray_start"
LOOK_SECONDS = 0.1
QUIET_SECONDS = 10.0  # until a wait is worth a line
CONNECT_SECONDS = 2.0
# Nothing scales a job's cluster, and the monitor that would answers everybody on all interfaces with its metrics.
NO_MONITOR = ["--no-monitor"]


def head(driver: List[str]) -> int:
    """Start the head's processes, wait for the workers, and become the driver."""
    address = os.environ["RAY_ADDRESS"]
    code = _start(
        ["--head", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false", *NO_MONITOR, *_client_port()]
    )
    if code:
        return code
    if not _have_workers_joined(address):
        print(
            "muster: the workers cannot be counted with this release of Ray; the driver starts without them",
            file=sys.stderr,
        )
    sys.stdout.flush()
    try:
        os.execv(driver[0], driver)
    except OSError as error:
        print(f"cannot start {driver[0]}: {error.strerror}", file=sys.stderr)
        return 126
    return 0


def _have_workers_joined(address: str) -> bool:
    """Wait for all of them, by a program that stays beside the driver; False where it failed.

    Its parent ends at once: the driver, which takes this process's place, should have no child that it did not start.
    """
    joined, ready = os.pipe()
    count = os.environ.get("MUSTER_RAY_NODES") or "0"
    words = [interpreters.owner("ray"), "-m", _BESIDE, address, count, str(QUIET_SECONDS), str(ready)]
    between = os.fork()
    if between == 0:
        try:
            subprocess.Popen(words, pass_fds=[ready], start_new_session=True)
        finally:
            os._exit(0)
    os.close(ready)
    os.waitpid(between, 0)
    with os.fdopen(joined, "rb") as pipe:
        return pipe.read(1) == b"1"


def worker() -> int:
    """Join the head once it listens, and stay as long as this node's processes do."""
    stopping: List[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    address = os.environ["RAY_ADDRESS"]
    _await_head(address, stopping)
    if stopping:
        return 128 + signal.SIGTERM
    woken = _wake_on_signals()
    node = subprocess.Popen(
        [
            interpreters.owner("ray"),
            "-m",
            _STARTS,
            "--join",
            address,
            "start",
            f"--address={address}",
            "--block",
            *_shape(),
        ],
        start_new_session=True,
    )
    while node.poll() is None:
        if stopping and not _is_listening(address):  # the driver has ended, and the head with it
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()
            return 0
        if select.select([woken], [], [], LOOK_SECONDS if stopping else None)[0]:
            os.read(woken, 512)
    return node.returncode


def _wake_on_signals() -> int:
    """Return what becomes readable at a stop and at a child's end; `Popen.wait` goes on waiting after a stop."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return woken


def _client_port() -> List[str]:
    """Return the flag for Ray's client server, which cannot be turned off where gRPC is installed (10001 in a pod)."""
    if not os.environ.get("MUSTER_RAY_IP") or not interpreters.has_module(
        interpreters.owner("ray"), dict(os.environ), name="grpc"
    ):
        return []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return [f"--ray-client-server-port={probe.getsockname()[1]}"]


def _start(words: List[str]) -> int:
    """Run `ray start`; return its exit code. What it says is shown only if it failed: else it is advice for a shell."""
    done = subprocess.run(
        [interpreters.owner("ray"), "-m", _STARTS, "start", *words, *_shape()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        start_new_session=True,
    )
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        sys.stderr.flush()
    return done.returncode


def _shape() -> List[str]:
    """Return the flags that differ by node. Ports are the system's choice, so that nodes may share a machine."""
    own = os.environ.get("MUSTER_RAY_IP") or _own_address()
    cpus = os.environ.get("MUSTER_RAY_CPUS")
    return [
        "--disable-usage-stats",
        f"--temp-dir={os.environ['RAY_TMPDIR']}",
        f"--node-name={os.environ['MUSTER_REPLICA'].partition('.')[0]}",  # whatever its incarnation
        *([f"--node-ip-address={own}"] if own else []),
        *([f"--num-cpus={cpus}"] if cpus else []),
        *(["--min-worker-port=0", "--max-worker-port=0"] if os.environ.get("MUSTER_RAY_IP") else []),
    ]  # fmt: skip


def _own_address() -> Optional[str]:
    """Return a pod's address, as its /etc/hosts has it; None where the name means nothing, and Ray has to guess."""
    try:
        found = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return None if found.startswith("127.") else found


def _await_head(address: str, stopping: List[int]) -> None:
    begun, is_printed = time.monotonic(), False
    while not stopping and not _is_listening(address):
        if not is_printed and time.monotonic() - begun > QUIET_SECONDS:
            print(f"muster: waiting for the head at {address}", flush=True)
            is_printed = True
        time.sleep(LOOK_SECONDS)


def _is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError:  # also a name that is not there yet
        return False
    return True
