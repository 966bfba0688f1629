"""Run by Ray in each of its worker processes before any task: makes a process that gets a RANK a rank of its replica.

Ray Train sets RANK in a process that already runs (ray/train/torch/config.py), so a thread waits for it. From then on
the process's output goes to the agent through two pipes, as a shim's does, and no longer into Ray's files. Whatever
fails here leaves the process as it was.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

from .. import shim

NAME = f"{__name__}.setup"
# What Ray runs is in this variable (ray/_private/ray_constants.py); a hook in a job's own runtime_env replaces it.
VARIABLE = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
LOOK_SECONDS = 0.2
_NEEDED = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_agents: "list[socket.socket]" = []  # open as long as this process lives: its end is how the agent learns of ours


def setup() -> None:
    if shim.SOCKET_ENV in os.environ:
        threading.Thread(target=_wait, name="muster-rank", daemon=True).start()


def _wait() -> None:
    while not all(name in os.environ for name in _NEEDED):
        time.sleep(LOOK_SECONDS)
    try:
        _become_rank()
    except (KeyError, OSError, ValueError):
        pass


def _become_rank() -> None:
    agent = shim.connect(os.environ[shim.SOCKET_ENV])
    outs = os.pipe(), os.pipe()
    shim.introduce(agent, launcher=0, read_ends=[outs[0][0], outs[1][0]], is_quiet=True)
    for out, number, stream in zip(outs, (1, 2), (sys.stdout, sys.stderr)):  # noqa: B905 - Python 3.8
        stream.flush()  # what was printed before belongs to the node
        os.dup2(out[1], number)
        os.close(out[0])
        os.close(out[1])
    agent.sendall(json.dumps({"pid": os.getpid(), "at": time.time()}).encode() + b"\n")
    _agents.append(agent)
