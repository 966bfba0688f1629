"""Ranks of torchrun that train without having met: each would train by itself, and their work is the same many times.

It happens where a library does not recognise that it is one of several, and says nothing: Lightning on CPUs, a script
that never calls `init_process_group`. A rank has met the others when it is connected to the store at MASTER_PORT
(torch's TCPStore, as long as a process group is there), or listens, as gloo, NCCL and other stores do.
"""

from __future__ import annotations

import os
import time
from typing import Dict, List, Optional, Sequence

from .. import linux

# From a rank's first step until it is said: a script may train a little before it meets the others.
ALONE_SECONDS = float(os.environ.get("MUSTER_ALONE_SECONDS", "60"))
LOOK_SECONDS = 10.0
_ESTABLISHED, _LISTEN = "01", "0A"  # include/net/tcp_states.h


class Alone:
    """Looks now and then at ranks that take steps, until one of them has met the others or all are known to be alone."""

    def __init__(self) -> None:
        self._since: Dict[int, float] = {}  # rank -> when its first step was seen, monotonic
        self._looked_at = 0.0
        self._is_over = False

    def stepped(self, rank: int) -> None:
        self._since.setdefault(rank, time.monotonic())

    def look(self, pids: Dict[int, int]) -> Optional[List[int]]:
        """Return the ranks that train alone, once, if all of these do; `pids` maps running ranks to processes."""
        now = time.monotonic()
        if self._is_over or not pids or now < self._looked_at + min(LOOK_SECONDS, ALONE_SECONDS):
            return None
        self._looked_at = now
        has_one_met = any(map(has_met, pids.values()))  # who has met one rank is not alone, whatever the others do
        are_alone = not has_one_met and all(now >= self._since.get(rank, now) + ALONE_SECONDS for rank in pids)
        self._is_over = has_one_met or are_alone
        return sorted(pids) if are_alone else None


def has_met(pid: int) -> bool:
    """Return whether this process, or one below it, takes part in a process group, or is gone."""
    pids = [pid, *linux.descendants(pid)]
    port = _master_port(pids)
    if port is None:
        return True
    found = _sockets(pid)
    return any(
        inode in found and (found[inode][0] == _LISTEN or found[inode][1] == port)
        for one in pids
        for inode in linux.sockets(one)
    )


def _master_port(pids: Sequence[int]) -> Optional[int]:
    """Return MASTER_PORT of the first of these processes that has one; None if they are gone, or are no ranks."""
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = [one[12:] for one in file.read().split(b"\0") if one.startswith(b"MASTER_PORT=")]
            if found:
                return int(found[0])
        except (OSError, ValueError):
            continue
    return None


def _sockets(pid: int) -> "Dict[str, tuple[str, int]]":
    """Return listening and connected TCP sockets of a process's network: inode -> (state, remote port). proc(5)."""
    found = {}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] in (_ESTABLISHED, _LISTEN):
                found[words[9]] = (words[3], int(words[2].rpartition(":")[2], 16))
    return found
