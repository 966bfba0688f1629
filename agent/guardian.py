"""A process that outlives a killed agent for a moment, to take along what PDEATHSIG does not reach.

PDEATHSIG ends the launcher and, through the shims, the ranks; not the children of a shell, nor a rank's data loaders.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from . import linux

ROUNDS = 5  # what is killed may just have forked


def stand_by(marks: list[bytes]) -> int:
    """Forks the guardian, which sleeps until this process ends. Returns its pid. Call it before there are threads."""
    read_end, write_end = os.pipe()  # nobody writes: its end of file is the agent's death
    pid = os.fork()
    if pid == 0:
        try:
            _guard(read_end, marks=marks)
        finally:
            os._exit(0)
    os.close(read_end)
    os.set_inheritable(write_end, False)
    return pid


def _guard(read_end: int, *, marks: list[bytes]) -> None:
    os.setsid()  # a signal to the agent's group is not for us
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Everything else goes, above all agent.lock: held by us it would say that the agent lives.
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    os.closerange(3, read_end)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > read_end:
            with contextlib.suppress(OSError):
                os.close(int(name))
    while os.read(read_end, 1):
        pass
    for _ in range(ROUNDS):
        left = linux.marked(marks)
        if not left:
            return
        linux.kill(left)
        time.sleep(0.05)
