"""A plain job inside a replica: its command runs as it is, and JAX finds the other processes by itself."""

from __future__ import annotations

import os
from typing import Dict

from ..state import Spec, StateFolder
from . import jax_hook, start_hook
from .base import Framework


class Plain(Framework):
    def prepare(self, env: Dict[str, str], *, spec: Spec, folder: StateFolder, pyz: str) -> None:
        if env.get(jax_hook.COUNT, "1") != "1":
            hook = start_hook.install(folder, "jax_hook", without="jax.distributed.initialize() needs its arguments")
            env["PYTHONPATH"] = os.pathsep.join([hook, env["PYTHONPATH"]])
