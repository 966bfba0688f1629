"""A process that briefly outlives a killed agent, to end its ranks and keep their last output.

It ends what PDEATHSIG does not reach: PDEATHSIG ends the launcher and, through the shims, the ranks; not the children
of a shell, nor a rank's data loaders. It also holds every pipe that the agent reads from, so that unread output is
still there when the agent is not: then it goes into the journal.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import time

from .. import linux
from ..state import StateFolder
from . import journal

ROUNDS, PAUSE_SECONDS = 10, 0.05  # a killed process may just have forked
PULLS = 64  # a writer that escaped the kill must not keep the guardian forever
_PIPE = struct.Struct("ii")  # (stream, rank)


class Guardian:
    """Fork the guardian, which sleeps until this process ends. Create it before any threads."""

    def __init__(self, marks: list[bytes], *, folder: StateFolder) -> None:
        """Start it; raises OSError when it cannot be started."""
        lock = os.open(folder.file("guardian.lock"), os.O_RDWR | os.O_CREAT, 0o600)  # held while a guardian is running
        fcntl.flock(lock, fcntl.LOCK_EX)
        # SEQPACKET: the end of the other side is an empty message, and each of ours arrives whole.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _guard(theirs.detach(), lock, marks=marks, spool=folder.spool)
            finally:
                os._exit(0)
        theirs.close()
        os.close(lock)  # now held by the guardian alone
        self._socket.setblocking(False)

    def keep_early(self, pipes: list[int], *, rank: int) -> None:
        """Pass the pipes of a process that is yet to be started: until `keep` has them too, a kill may come between."""
        for number, pipe in enumerate(pipes, start=1):
            self.keep(pipe, stream=-number, rank=rank)

    def keep(self, pipe: int, *, stream: int, rank: int) -> None:
        """Pass a pipe to the guardian, which holds it until its last writer has closed it."""
        with contextlib.suppress(OSError):  # the guardian was killed: the agent goes on alone
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pipe]))]
            self._socket.sendmsg([_PIPE.pack(stream, rank)], rights)


def _guard(agent: int, lock: int, *, marks: list[bytes], spool: str) -> None:
    _stand_apart(agent, lock)
    pipes = _keep_all(socket.socket(fileno=agent))
    end_all(marks)
    _save(pipes, spool=spool)


def end_all(marks: list[bytes]) -> None:
    """End all processes that carry these marks.

    To find none is no proof yet: one may be born during a look, and its parent end in it. So there are two such looks.
    """
    looks_without = 0
    for _ in range(ROUNDS):
        left = linux.marked(marks)
        looks_without = 0 if left else looks_without + 1
        if looks_without == 2:
            return
        linux.kill(left)
        time.sleep(PAUSE_SECONDS)


def _stand_apart(*kept: int) -> None:
    os.setsid()  # so that a signal to the agent's group does not reach it
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Close everything else, above all agent.lock: held here it would mean that the agent is alive.
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _keep_all(agent: socket.socket) -> dict[int, tuple[int, int]]:
    """Collect pipes until the agent ends; return stream -> (rank, pipe) for pipes that may hold data."""
    pipes: dict[int, tuple[int, int]] = {}
    size = array.array("i").itemsize
    while True:
        message, rights, _, _ = agent.recvmsg(_PIPE.size, socket.CMSG_SPACE(size))
        if not message:
            return pipes
        _let_go(pipes)
        stream, rank = _PIPE.unpack(message)
        for _, _, content in rights:
            pipes[stream] = rank, array.array("i", content[:size])[0]


def _let_go(pipes: dict[int, tuple[int, int]]) -> None:
    """Close pipes that were read to their end."""
    poll = select.poll()
    streams = {pipe: stream for stream, (_, pipe) in pipes.items()}
    for pipe in streams:
        poll.register(pipe, select.POLLIN)
    for pipe, events in poll.poll(0):
        if events & select.POLLHUP and not events & select.POLLIN:
            os.close(pipe)
            del pipes[streams[pipe]]


def _save(pipes: dict[int, tuple[int, int]], *, spool: str) -> None:
    """Move what is left in the pipes into the journal. There is no journal if the agent ended by itself."""
    found = journal.last(spool)
    if found is None:
        return
    ours = journal.Journal(spool)
    ours.resume(found[1])
    # Those that were kept early come last: where the agent has read from a pipe, it continues under its own number.
    for stream, (rank, pipe) in sorted(pipes.items(), reverse=True):
        ours.adopt(stream, rank=rank)
        for _ in range(PULLS):
            with contextlib.suppress(BlockingIOError):
                if ours.take(pipe, stream=stream):
                    continue
            break
