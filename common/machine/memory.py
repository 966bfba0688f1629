"""How much memory this machine has, or the container that we run in."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_MEMINFO = Path("/proc/meminfo")
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
_STATS = Path("/sys/fs/cgroup/memory.stat")


class Memory(NamedTuple):
    """In bytes. `available`: what programs can take without swapping."""

    total: int
    available: int


def memory() -> Memory:
    """Return the machine's memory, or where that is less, that of our control group (version 2)."""
    amounts = dict(_amount(line) for line in _MEMINFO.read_text().splitlines())
    total, available = amounts["MemTotal"], amounts.get("MemAvailable", amounts["MemTotal"])
    with suppress(OSError, ValueError):  # no limit: "max", or no such file
        limit = int(_LIMIT.read_text())
        reclaimable = next(
            int(line.split()[1]) for line in _STATS.read_text().splitlines() if line.startswith("inactive_file ")
        )
        used = int(_USED.read_text()) - reclaimable
        return Memory(min(total, limit), min(available, max(0, limit - used)))
    return Memory(total, available)


def _amount(line: str) -> tuple[str, int]:
    """Read a line such as `MemTotal:  24618352 kB`."""
    name, _, rest = line.partition(":")
    return name, int(rest.split()[0]) * 1024
