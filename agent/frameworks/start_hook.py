"""Runs a module of the agent at the start of each Python below a replica, before the job's own program."""

from __future__ import annotations

import os

from ..state import StateFolder

# What Python imports at its start (site.py) from the first folder of PYTHONPATH. It imports the environment's own, too.
_START = """\
import importlib.machinery, importlib.util, os, sys
try:
    from _muster_agent.frameworks import {module}
    {module}.setup()
except Exception as error:
    print(f"muster: {without}: {{error!r}}", file=sys.stderr)
_own = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [one for one in sys.path if os.path.abspath(one) != _own])
if _spec and _spec.loader:
    _module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
"""


def install(folder: StateFolder, module: str, *, without: str) -> str:
    """Return the folder to put first in PYTHONPATH, so that `setup` of this module beside us runs.

    `without` says what does not work if it cannot.
    """
    path = folder.file("hook")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "sitecustomize.py"), "w", encoding="utf-8") as file:
        file.write(_START.format(module=module, without=without))
    return path
