"""Install PyTorch while Muster is up already: `bin/demo` starts with the smaller environment and adds the rest to it.

Both environments are one folder, and the larger lock file has everything of the smaller one in the same versions, so
nothing changes under the processes that run from it.
"""

import contextlib
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from . import EmbeddedError
from .files import last_lines, open_log
from .processes import spawn
from .programs import CHECKOUT
from .supervisor import Supervisor

INSTALL = ("bash", "-euo", "pipefail", "-c", ". bin/_env; ensure_env demo")
WHOLE_MB = 3000  # about what is fetched
LOOK_SECONDS = 2.0
STEP_MB = 300  # between two lines of progress
_FETCHED = re.compile(r"^\s*Downloading \S+ \((\d+(?:\.\d+)?) (kB|MB|GB)\)", re.M)
_MB = {"kB": 0.001, "MB": 1.0, "GB": 1000.0}


def fetch(supervisor: Supervisor, *, log: Path, say: Callable[[str], None], install: Sequence[str] = INSTALL) -> None:
    """Install it and say how far that is. Raises EmbeddedError with the installer's last words, and StopAsked."""
    say("Fetching PyTorch (about 3 GB, once), which torchrun jobs need; meanwhile, look around.")
    out = open_log(log)
    try:
        process = spawn(install, log=out, env=dict(os.environ), folder=CHECKOUT)
    finally:
        os.close(out)
    ended: list[bool] = []
    handle = supervisor.watch(process, lambda: ended.append(True))
    announced = 0.0
    try:
        while not supervisor.wait(lambda: bool(ended), seconds=LOOK_SECONDS):
            fetched = fetched_mb(log.read_text(errors="replace"))
            if fetched - announced >= STEP_MB:
                announced = fetched
                say(f"  {fetched / 1000:.1f} of about {WHOLE_MB / 1000:.0f} GB")
    finally:
        supervisor.unwatch(handle)
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the shell and pip
        code = process.wait()
    if code:
        raise EmbeddedError(f"PyTorch was not installed; {log} ends with:\n{last_lines(log)}")
    say("PyTorch is there.")


def fetched_mb(log: str) -> float:
    """Return the megabytes of all packages whose download has begun, from what pip prints."""
    return sum(float(size) * _MB[unit] for size, unit in _FETCHED.findall(log))
