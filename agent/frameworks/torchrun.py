"""torchrun inside a replica: each rank is started through the agent's shim, so that it is seen by itself."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import sys
from typing import Dict, List, Optional, Sequence

from .. import names
from ..state import Spec, StateFolder
from .base import Framework

MODULE = "torch.distributed.run"  # what the torchrun command runs (its entry point)
# Flags without a value (torch/distributed/run.py, get_args_parser).
_BARE_FLAGS = {"standalone", "virtual-local-rank", "h", "help", "v"}
_NO_SCRIPT_FLAGS = {"m", "module", "no-python", "run-path"}


_WORD = re.compile(rb"(?:.*[/_])?torchrun(?:\.py)?\Z|torch\.distributed\.(?:run|launch)\Z", re.DOTALL)


class Torchrun(Framework):
    def prepare(self, env: Dict[str, str], *, spec: Spec, folder: StateFolder, pyz: str) -> None:
        # By default torchrun kills its ranks 30 s after SIGTERM, whatever grace period was requested.
        env.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(max(1, int(spec.grace_seconds))))
        if not spec.is_rank:  # a torchrun inside the one rank has ranks of its own
            env.update(_hook(folder, pyz=pyz))

    def has_ranks(self) -> bool:
        return True

    def is_launcher(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return any(_WORD.match(word) for word in file.read().split(b"\0")[:6])
        except OSError:
            return False

    def script(self, command: Sequence[str]) -> Optional[str]:
        words = list(command[1:])
        if os.path.basename(command[0]) == "torchrun":
            return _script(words)
        return _script(words[2:]) if words[:2] == ["-m", MODULE] else None

    def instead(self, command: Sequence[str], *, python: str) -> Optional[List[str]]:
        """Return torchrun as a module: an image may have the package without its command."""
        return [python, "-m", MODULE, *command[1:]] if os.path.basename(command[0]) == "torchrun" else None

    def wrapped(self, words: List[str], *, spec: Spec, folder: StateFolder, env: Dict[str, str], pyz: str) -> List[str]:
        """Return what starts torchrun once the name of the host of its rendezvous is known.

        Other commands may need no other replica, and one that has ended has no name any more: they start at once.
        """
        host = env.get("PET_MASTER_ADDR") or env.get("PET_RDZV_ENDPOINT", "").rpartition(":")[0].strip("[]")
        if self.script(spec.command) is None or not _is_anothers_name(host, env):
            return words
        seconds = str(spec.start_timeout_seconds)
        return [sys.executable, "-I", "-S", "-E", pyz, "--once-known", host, seconds, *words]


def _is_anothers_name(host: str, env: Dict[str, str]) -> bool:
    """Return whether this is the name of another replica, and neither an address nor the replica's own name."""
    if host in ("", env.get(names.OWN)):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _script(words: List[str]) -> str:
    while words and words[0].startswith("-"):
        name, equals, _ = words.pop(0).lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name in _NO_SCRIPT_FLAGS:
            return ""
        if not equals and name and name not in _BARE_FLAGS and words:
            words.pop(0)
    return words[0] if words else ""


def _hook(folder: StateFolder, *, pyz: str) -> Dict[str, str]:
    """Write the shim as one executable file: torchrun takes PYTHON_EXEC as a path, not as a command with arguments."""
    path = folder.file("rank-python")
    with open(path, "w", encoding="utf-8") as file:
        # -I -S -E: no site-packages, no user's variables; a rank waits for this start.
        words = [sys.executable, "-I", "-S", "-E", pyz, "--shim"]
        file.write(f'#!/bin/sh\nexec {" ".join(map(shlex.quote, words))} "$@"\n')
    os.chmod(path, 0o755)
    if not os.access(path, os.X_OK):  # a folder mounted noexec: training without per-rank reports is better than none
        folder.trouble(f"{path} cannot be executed; ranks are not seen one by one")
        return {}
    return {"PYTHON_EXEC": path}
