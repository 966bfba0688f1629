"""Traces that a node could leave on this machine, told from those of other nodes: lanes of tests run side by side."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from rig.network import Cable
from rig.node import HIDDEN, KERNEL, NAME
from tests.process.embedded.world import processes_naming

NOTHING: dict[str, Any] = {"links": [], "mounts": [], "rules": [], "routes": [], "groups": [], "processes": []}


def trace(cable: Cable, folder: Path) -> dict[str, Any]:
    """What there is of the node at the end of this cable, whose files are in this folder; NOTHING once it is gone."""
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    group = f"muster-{NAME}-{cable.number}"
    return {
        "links": [name for name in os.listdir("/sys/class/net") if name in (cable.name, cable.far_end)],
        "mounts": [place for place in mounted if place in HIDDEN[1:] or place.startswith(f"{folder}/")],
        "rules": _naming(cable, "iptables-save"),
        "routes": _naming(cable, "ip", "route"),
        "groups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{group}")],
        "processes": [*processes_naming(str(folder)), *_members(group)],
    }


def cable_in(text: str) -> Cable | None:
    """The cable whose address at this machine stands in the text."""
    found = re.search(r"\b10\.88\.(\d+)\.1\b", text)
    return Cable(int(found[1])) if found else None


def kernel() -> dict[str, str]:
    return {path: Path(path).read_text() for path in KERNEL}


def folders() -> dict[str, list[str] | None]:
    """The content of the folders that a node hides; None for one that does not exist."""
    return {name: sorted(os.listdir(name)) if os.path.isdir(name) else None for name in HIDDEN}


def _naming(cable: Cable, *words: str) -> list[str]:
    if not shutil.which(words[0]):
        return []
    lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if f"{cable.name} " in f"{line} " or cable.host.removesuffix("1") in line]


def _members(group: str) -> list[str]:
    """Processes in the node's control group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            found += [str(path)] if f"/{group}" in path.read_text() else []
        except OSError:
            continue
    return found
