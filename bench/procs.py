"""CPU seconds and memory of processes, from /proc. A process that ends between two looks keeps its last figure."""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_AGENT = re.compile(r"\bagent(-[0-9a-f]+)?\.pyz\b")
# The name of `short` to the kind of process; whatever is not named here is not Muster (ranks, the benchmark itself).
PARTS = {
    "uvicorn": "web", "celery worker": "tasks", "beat": "beat", "watch": "watcher", "postgres": "postgres",
    "redis-server": "redis", "agent.pyz": "agents", "rank-python": "agents", "embedded": "supervisor",
}  # fmt: skip


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    started: int
    command: str
    cpu_seconds: float
    children_cpu_seconds: float  # of children that ended and were waited for


def processes() -> Iterator[Process]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (found := look(int(entry.name))):
            yield found


def look(pid: int) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    if not command:  # a kernel's thread, or a process that ended: what it was cannot be seen any more
        return None
    times = [int(field) / _TICK for field in fields[11:15]]
    return Process(pid, int(fields[1]), int(fields[19]), command, times[0] + times[1], times[2] + times[3])


def descendants(root: int) -> list[Process]:
    """`root` and everything below it."""
    found = list(processes())
    family = {root}
    grown = True
    while grown:
        more = {one.pid for one in found if one.parent in family} - family
        family |= more
        grown = bool(more)
    return [one for one in found if one.pid in family]


def pss_bytes(pid: int) -> int:
    """Memory of a process with what it shares counted in parts. Source: /proc/PID/smaps_rollup, proc(5)."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


class Meter:
    """Adds up the CPU of a changing set of processes by looking at it every `every` seconds."""

    def __init__(self, which: Callable[[], list[Process]], every: float = 1.0):
        self.which, self.every = which, every
        self.first: dict[tuple[int, int], float] = {}
        self.last: dict[tuple[int, int], float] = {}
        self.names: dict[tuple[int, int], str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Meter":
        self._look(is_first=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def cpu_seconds(self) -> float:
        return sum(self.last[key] - self.first.get(key, 0.0) for key in self.last)

    def by_command(self) -> dict[str, float]:
        """CPU seconds by the last words of the command, for the profile in a note."""
        found: dict[str, float] = {}
        for key, value in self.last.items():
            name = self.names[key]
            found[name] = found.get(name, 0.0) + value - self.first.get(key, 0.0)
        return {name: round(value, 2) for name, value in sorted(found.items(), key=lambda pair: -pair[1])}

    def parts(self) -> dict[str, float]:
        """CPU seconds by kind of process, as named in PARTS."""
        found: dict[str, float] = {}
        for key, value in self.last.items():
            if part := PARTS.get(self.names[key]):
                found[part] = found.get(part, 0.0) + value - self.first.get(key, 0.0)
        return found

    def _run(self) -> None:
        while not self._stop.wait(self.every):
            self._look()

    def _look(self, is_first: bool = False) -> None:
        for one in self.which():
            key = (one.pid, one.started)
            self.last[key] = one.cpu_seconds
            self.names[key] = short(one.command)
            if is_first:
                self.first[key] = one.cpu_seconds


def scaled(parts: Mapping[str, float], by: float) -> dict[str, float]:
    return {name: value * by for name, value in parts.items()}


def is_agent(command: str) -> bool:
    """Local replicas run a copy that is named after its content: agent-8b8db839f921009c.pyz."""
    return _AGENT.search(command) is not None


def short(command: str) -> str:
    if is_agent(command):
        return "agent.pyz"
    for word in (
        "rank-python",
        "uvicorn",
        "celery worker",
        "beat",
        "watch",
        "postgres",
        "redis-server",
        "embedded",
    ):
        if word in command:
            return word
    return command[:40]
