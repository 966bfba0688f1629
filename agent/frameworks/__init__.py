"""What a framework needs inside a replica, named in replica.json. `jobs/frameworks/` has the server's half of each.

Most need nothing here: their command runs as it is.
"""

from __future__ import annotations

from .base import Framework
from .monarch import Monarch
from .plain import Plain
from .ray import Ray
from .torchrun import Torchrun

_ALL = {"monarch": Monarch, "plain": Plain, "ray": Ray, "torchrun": Torchrun}


def get(name: str) -> Framework:
    """Return a framework's half. One that only a newer control plane knows gets the neutral one."""
    return _ALL.get(name, Framework)()
