"""Which Python a launcher is installed for: on a local cluster it may be in another environment than the shell's."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from typing import Dict, Optional


def owner(program: str, *, path: Optional[str] = None) -> str:
    """Return the interpreter that a program of a Python package starts with; else python3 of `path` (default: PATH)."""
    first = second = ""
    with contextlib.suppress(OSError):
        with open(shutil.which(program, path=path) or "", encoding="utf-8", errors="replace") as file:
            first, second = file.readline(4096).strip(), file.readline(4096).strip()
    found = first[2:].strip().split(" ")[0] if first.startswith("#!") else ""
    if found == "/bin/sh" and second.startswith("'''exec' "):  # how pip and uv write a long path, or one with spaces
        found = shlex.split(second)[1]
    is_python = os.path.isabs(found) and "python" in os.path.basename(found)
    return found if is_python else shutil.which("python3", path=path) or sys.executable


def has_module(python: Optional[str], env: Dict[str, str], *, name: str) -> bool:
    """Return whether this interpreter could import a module."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return bool(python) and subprocess.run([str(python), "-c", look], env=env, check=False).returncode == 0


def prefer(program: str, env: Dict[str, str], *, name: str) -> None:
    """Put the environment of `program` first on the PATH, if the python3 that is there has no such module."""
    if not has_module(shutil.which("python3", path=env["PATH"]), env, name=name):
        env["PATH"] = os.pathsep.join([os.path.dirname(owner(program, path=env["PATH"])), env["PATH"]])
