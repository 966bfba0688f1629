"""Linux-specific calls: parent death signals, subreapers, /proc.

Sources: prctl(2), proc(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

_libc = ctypes.CDLL(None, use_errno=True)
# execve(2) takes no more. But a process may declare any of its memory as its environment (prctl(2), PR_SET_MM).
MOST_ENVIRON_BYTES = 6 << 20


def die_with(parent: int) -> None:
    """Have this process killed when the thread that forked it ends. Call it in the child, before exec."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the line above, so no signal will come
        os.kill(os.getpid(), signal.SIGKILL)


def become_subreaper() -> None:
    """Make orphans below this process its children instead of init's."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def boot_id() -> str:
    """Return an id of this boot of this machine: a pid means nothing across boots."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third (state) on; the second may contain spaces and brackets.

    Raises OSError when there is no such process.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def started(pid: int) -> int:
    """Return the process's start, in clock ticks after boot. Raises OSError when there is no such process."""
    return int(stat_fields(pid)[19])


def parent(pid: int) -> int:
    """Return the pid of the parent; 0 where the process is gone."""
    try:
        return int(stat_fields(pid)[1])
    except (OSError, IndexError, ValueError):
        return 0


def group(pid: int) -> int:
    """Return the process group; 0 where the process is gone."""
    try:
        return int(stat_fields(pid)[2])
    except (OSError, IndexError, ValueError):
        return 0


def name(pid: int) -> str:
    """Return the name that the process gave itself, at most 15 characters; empty where it is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def sockets(pid: int) -> list[str]:
    """Return the inodes of the sockets that a process has open; none where it is gone."""
    found = []
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                if target.startswith("socket:["):
                    found.append(target[8:-1])
    return found


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    try:
        return stat_fields(pid)[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`, children before grandchildren."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def marked(marks: list[bytes]) -> list[int]:
    """Return this user's processes, except this one, with every one of `marks` (b"NAME=value") in their environment."""
    return [pid for pid in _pids() if pid != os.getpid() and _carries(pid, marks=marks)]


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
        except FileNotFoundError:
            if os.path.isdir(f"/proc/{pid}/task/{task}"):
                return _children_by_parent(pid)  # a kernel without CONFIG_PROC_CHILDREN
        except OSError:
            pass
    return found


def _children_by_parent(parent: int) -> list[int]:
    found = []
    for pid in _pids():
        try:
            if int(stat_fields(pid)[1]) == parent:
                found.append(pid)
        except (OSError, IndexError):
            pass
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _carries(pid: int, *, marks: list[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = b"\0%b\0" % file.read(MOST_ENVIRON_BYTES + 1)
    except OSError:
        return False
    return len(environ) <= MOST_ENVIRON_BYTES + 2 and all(b"\0%b\0" % mark in environ for mark in marks)


def oom_kills() -> int | None:
    """Return how many processes the kernel killed for lack of memory in this control group; None where unavailable.

    Not the machine's count (/proc/vmstat): its kills may be any other job's. See cgroup-v2.rst, memory.events.
    """
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            group = next((line.rstrip("\n")[3:] for line in file if line.startswith("0::")), "")
        return counter(f"/sys/fs/cgroup{group.rstrip('/')}/memory.events", "oom_kill")
    except (OSError, ValueError):
        return None


def counter(path: str, name: str) -> int:
    """Return one number of a control group's file. Raises OSError and ValueError."""
    with open(path, encoding="ascii") as file:
        for line in file:
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    raise ValueError(f"{path} has no {name}")
