"""Monarch inside a replica: hosts that wait for actors, and the controller, whose script attaches to them.

In a pod the script finds its hosts in the cluster's API, as it would without Muster. Where replicas share one machine
(a local cluster) there is none: `monarch_hook` answers in its place.
"""

from __future__ import annotations

import json
import os
import re
from typing import Callable, Dict, List, Optional

from ..state import Spec, StateFolder
from . import interpreters, late_ranks, loopback, monarch_hook, start_hook
from .base import Framework

CONTROLLER = "controller"
PROGRAM = MODULE = "monarch"
_NAMED = re.compile(rb"self\.rank=(\d{1,9})\b")  # how Monarch's own examples begin their lines
_MOST_SCRIPT_BYTES = 1 << 20


class Monarch(Framework):
    def prepare(self, env: Dict[str, str], *, spec: Spec, folder: StateFolder, pyz: str) -> None:
        interpreters.prefer(PROGRAM, env, name=MODULE)
        # The code, too: actors import what the script imports, which is beside it.
        hook = start_hook.install(folder, "monarch_hook", without="Monarch's actors are not seen one by one")
        env["PYTHONPATH"] = os.pathsep.join([hook, spec.start(folder.code), env["PYTHONPATH"]])
        # Processes that the script starts on this_host() are the job's ranks, in place of those of its meshes.
        env[late_ranks.FIRST_ENV] = "0" if spec.role == CONTROLLER else str(spec.first_rank)
        if env.get("MUSTER_MONARCH_CONTROLLER") != loopback.LOCAL:
            return
        port = env["MONARCH_PORT"]
        if spec.role == CONTROLLER:
            hosts = {
                mesh: [[loopback.address(spec.mark, mesh, index), int(port)] for index in range(count)]
                for mesh, count in _meshes(env).items()
            }
            env[monarch_hook.HOSTS_ENV] = json.dumps(hosts)
        else:
            own = f"tcp://{loopback.address(spec.mark, spec.role, spec.index, incarnation=spec.incarnation)}:{port}"
            env["MUSTER_MONARCH_ADDRESS"] = f"{own}@{own}"

    def missing(self, find: Callable[[str], Optional[str]], *, env: Dict[str, str]) -> str:
        if interpreters.has_module(find("python3"), env, name=MODULE):
            return ""
        return "Monarch is not installed here: python3 has no module monarch; install the package `torchmonarch` in the image or environment"

    def wrapped(self, words: List[str], *, spec: Spec, folder: StateFolder, env: Dict[str, str], pyz: str) -> List[str]:
        """Give a script that takes Monarch's usual options the job's own numbers, where the command does not say them."""
        if spec.role != CONTROLLER:
            return words
        mesh, count = next(iter(_meshes(env).items()))
        numbers = {"num_hosts": count, "gpus_per_host": env["MUSTER_MONARCH_PROCESSES"], "mesh_name": mesh}
        script = next((word for word in words[1:] if word.endswith(".py")), "")
        taken = _options(os.path.join(spec.start(folder.code), script)) if script else set()
        given = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in words if word.startswith("--")}
        more = [f"--{name}={value}" for name, value in numbers.items() if name in taken and name not in given]
        return [*words, *more]

    def rank_of(self, line: bytes) -> Optional[int]:
        found = _NAMED.match(line)
        return int(found.group(1)) if found else None


def _meshes(env: Dict[str, str]) -> Dict[str, int]:
    pairs = (word.partition("=") for word in env["MUSTER_MONARCH_MESHES"].split())
    return {name: int(count) for name, _, count in pairs}


def _options(path: str) -> "set[str]":
    """Return which of the usual options a script defines, by its text."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_SCRIPT_BYTES)
    except OSError:
        return set()
    return set(re.findall(r"""["']--(num_hosts|gpus_per_host|mesh_name)["']""", text))
