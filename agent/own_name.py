"""Wait until the replica's own DNS name can be looked up, where its command is told that name to listen at.

A pod's name is published a moment after the pod has its address, and only then does a lookup succeed, in the pod itself
too: its /etc/hosts has the name with the cluster's domain, which nobody here knows. What binds to MASTER_ADDR, as
`socket.create_server` does, would fail in between; what connects to it tries again by itself.
"""

from __future__ import annotations

import socket
import time
from typing import Callable, Iterator, Mapping

VARIABLE = "MUSTER_HOST"
SECONDS = 60.0  # longer than resolvers remember that a name is not there (CoreDNS: 30 s)
_LOOK_SECONDS = 0.1


def awaited(env: Mapping[str, str], *, look: Callable[[str], object] = socket.gethostbyname) -> Iterator[float]:
    """Yield for how many seconds to pause before the next look; end once the name is known, or after SECONDS.

    Where no other variable has the name, nothing is awaited: what others call this replica is then of no use to it.
    """
    own = env.get(VARIABLE, "")
    if not own or not any(own in value for name, value in env.items() if name != VARIABLE):
        return
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            look(own)
            return
        except OSError:
            yield _LOOK_SECONDS
