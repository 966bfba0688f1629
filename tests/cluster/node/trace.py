"""Traces that a node could leave on this machine."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rig.node import HIDDEN, KERNEL


def trace() -> dict[str, Any]:
    """A snapshot of the machine; equal snapshots before and after mean that nothing was left."""
    return {
        "links": sorted(name for name in os.listdir("/sys/class/net")),
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "rules": _said("iptables-save"),
        "routes": _said("ip", "route"),
        "groups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("*/muster-*")),
        "kernel": {path: Path(path).read_text() for path in KERNEL},
        "folders": {name: sorted(os.listdir(name)) if os.path.isdir(name) else None for name in HIDDEN},
        "processes": sorted(_ours()),
    }


def _said(*words: str) -> list[str]:
    """The command's output without counters and times."""
    if not shutil.which(words[0]):
        return []
    lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if not line.startswith(("#", ":"))]


def _ours() -> Iterator[str]:
    """Processes of programs that only a node runs."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = path.read_text().strip()
        except OSError:
            continue
        if name.startswith(("containerd", "kubelet", "coredns", "runc", "unshare")):
            yield name
