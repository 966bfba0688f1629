"""Wait until a DNS name of the job can be looked up: the replica's own, or that of the replica that it connects to.

A pod's name is published a moment after the pod has its address, and only then does a lookup succeed, in the pod itself
too: its /etc/hosts has the name with the cluster's domain, which nobody here knows.
- What binds to its own name, as `socket.create_server` does with MASTER_ADDR, would fail in between.
- What connects to another pod, whose image may still be pulled, tries again by itself, but each time later: torchrun
  pauses for a minute and more (torch 2.15, c10d's socket.cpp), and prints what is missing after 15.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from typing import Callable, Iterator, List, Mapping

OWN = "MUSTER_HOST"
OWN_SECONDS = 60.0  # longer than resolvers remember that a name is not there (CoreDNS: 30 s)
_OWN_LOOK_SECONDS = 0.1
LOOK_SECONDS = 1.0  # of many replicas at once, while one is missing
QUIET_SECONDS = 10.0  # until a wait is worth a line
NO_HOST = 68  # EX_NOHOST of sysexits.h


class Unknown(Exception):
    """The name cannot be looked up; the resolver's own words."""


def _look_up(name: str) -> object:
    return socket.getaddrinfo(name, None)  # of either family: a cluster may have IPv6 alone


def own(env: Mapping[str, str], *, look: Callable[[str], object] = _look_up) -> Iterator[float]:
    """Yield for how many seconds to pause before the next look; end once the name is known, or after OWN_SECONDS.

    Where no other variable has the name, nothing is awaited: what others call this replica is then of no use to it.
    """
    name = env.get(OWN, "")
    if not name or not any(name in value for variable, value in env.items() if variable != OWN):
        return
    with contextlib.suppress(Unknown):
        yield from awaited(name, seconds=OWN_SECONDS, pause=_OWN_LOOK_SECONDS, look=look)


def awaited(name: str, *, seconds: float, pause: float, look: Callable[[str], object] = _look_up) -> Iterator[float]:
    """Yield for how long to pause before the next look. Raises Unknown when the name is still unknown after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            look(name)
            return
        except OSError as error:
            if time.monotonic() >= end:
                raise Unknown(error.strerror or str(error)) from error
        yield pause


def main(words: List[str]) -> int:
    """Become a command once a host is known: `--once-known HOST SECONDS COMMAND...`.

    A program of its own and not a step of the agent: meanwhile the agent reports, and a stop is a signal as always.
    """
    host, seconds, command = words[0], float(words[1]), words[2:]
    begun, is_printed = time.monotonic(), False
    try:
        for pause in awaited(host, seconds=seconds, pause=LOOK_SECONDS):
            if not is_printed and time.monotonic() - begun >= QUIET_SECONDS:
                print(f"muster: waiting for {host}, where the nodes meet: its name cannot be looked up yet", flush=True)
                is_printed = True
            time.sleep(pause)
    except Unknown as error:
        complaint = f"the host {host} cannot be looked up after {seconds:.0f} s ({error})"
        print(f"muster: error: {complaint}; is its pod running, and the cluster's DNS?", file=sys.stderr, flush=True)
        return NO_HOST
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
    return 126
