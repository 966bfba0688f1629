"""Named points where tests can make an agent die, to see the effect of a death exactly there.

The same rules as the control plane's `common/faultpoints.py`, which this file cannot import: a point fires once, when
its name is in CRASH_AT or `<name>.armed` is in CRASH_MARKS, and the mark that remains proves it. Off, it costs nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Iterator

NAMES = ("agent.list", "agent.fetch", "agent.cache", "agent.spawn", "agent.status", "agent.spool", "agent.send")
POINTS = tuple(f"{name}.{when}" for name in NAMES for when in ("before", "after"))

_MARKS = os.environ.get("CRASH_MARKS", "")
_AT = frozenset(os.environ.get("CRASH_AT", "").split(",")) - {""}


@contextlib.contextmanager
def around(name: str) -> Iterator[None]:
    """Put a point before and one after an external call."""
    point(f"{name}.before")
    yield
    point(f"{name}.after")


def point(name: str) -> None:
    if _MARKS:
        number = _drawn(name)
        if number:
            signal.pthread_kill(threading.get_ident(), number)


def _drawn(name: str) -> int:
    mark, word = os.path.join(_MARKS, name), ""
    try:
        os.rename(f"{mark}.armed", mark)
        with open(mark, encoding="ascii") as file:
            word = file.read().strip()
    except OSError:
        if name not in _AT:
            return 0
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except OSError:
            return 0
    with open(mark, "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {time.time():.3f} agent\n")
    return int(signal.Signals["SIG" + (word or "KILL")])
