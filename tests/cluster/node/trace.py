"""Traces that a node could leave on this machine, told from those of other nodes: lanes of tests run side by side."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rig.network import Cable
from rig.node import HIDDEN, KERNEL
from tests.process.embedded.world import processes_naming

NOTHING: dict[str, Any] = {"links": [], "mounts": [], "rules": [], "routes": [], "groups": [], "processes": []}


def trace(cable: Cable, folder: Path) -> dict[str, Any]:
    """What there is of the node at the end of this cable, whose files are in this folder; NOTHING once it is gone."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    group = f"muster-node0-{cable.number}"
    return {
        "links": [name for name in os.listdir("/sys/class/net") if name in (cable.name, cable.far_end)],
        "mounts": [place for place in mounted if place in HIDDEN[1:] or place.startswith(f"{folder}/")],
        "rules": _naming(cable, "iptables-save"),
        "routes": _naming(cable, "ip", "route"),
        "groups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{group}")],
        "processes": [*processes_naming(str(folder)), *_members(group)],
    }


def kernel() -> dict[str, str]:
    return {path: Path(path).read_text() for path in KERNEL}


def folders() -> dict[str, list[str] | None]:
    """The content of the folders that a node hides; None for one that does not exist."""
    return {name: sorted(os.listdir(name)) if os.path.isdir(name) else None for name in HIDDEN}


def _naming(cable: Cable, *words: str) -> list[str]:
    if not shutil.which(words[0]):
        return []
    lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if f"{cable.name} " in f"{line} " or f"10.88.{cable.number}." in line]


def _members(group: str) -> list[str]:
    """Processes in the node's control group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            found += [str(path)] if f"/{group}" in path.read_text() else []
        except OSError:
            continue
    return found
