"""Makes a process that gets a RANK while it runs a rank of its replica, as Ray Train's and Monarch's actors do.

From then on the process's output goes to the agent through a pipe, as a shim's does. Whatever fails here leaves the
process as it was.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

from ..ranks import shim

LOOK_SECONDS = 0.2
# The lowest rank of the role, where a launcher counts the ranks of each role from 0.
FIRST_ENV = "MUSTER_FIRST_RANK"
_NEEDED = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_agents: "list[socket.socket]" = []  # open as long as this process lives: its end is how the agent learns of ours


def watch() -> None:
    """Wait for a RANK in a thread of this process."""
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
    read_end, out = os.pipe()
    first = int(os.environ.get(FIRST_ENV, "0"))
    shim.introduce(agent, launcher=0, read_ends=[read_end], first_rank=first, is_quiet=True)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        stream.flush()  # what was printed before belongs to the node
        os.dup2(out, number)
    os.close(read_end)
    os.close(out)
    agent.sendall(json.dumps({"pid": os.getpid(), "at": time.time()}).encode() + b"\n")
    _agents.append(agent)
