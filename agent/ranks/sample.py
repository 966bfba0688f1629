"""Sample CPU, memory and GPU of each rank, every two seconds, in a thread of its own: a driver may be slow."""

from __future__ import annotations

import os
import threading
import time
from typing import Callable

from .. import linux
from ..output.outbox import Outbox
from . import nvml
from .ranks import Rank, Ranks

EVERY_SECONDS = 2.0
TREE_EVERY = 5  # samples: reading every thread's children is the expensive part, and workers are seldom replaced
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessUsage:
    """CPU and memory of one rank with everything below it."""

    def __init__(self, pid: int) -> None:
        """Begin measuring; raises OSError when there is no such process."""
        self._pid = pid
        self._pids: list[int] = []
        self._ticks: dict[int, int] = {}
        self._at = linux.started(pid) / _TICKS
        self._turn = 0

    def measure(self, *, now: float) -> tuple[float, int] | None:
        """Return CPU in cores since the last call or the start, and resident bytes; None when the rank is gone.

        `now` in seconds since boot.
        """
        if self._turn % TREE_EVERY == 0:
            self._pids = [self._pid, *linux.descendants(self._pid)]
        self._turn += 1
        seen = {pid: one for pid, one in ((pid, _usage(pid)) for pid in self._pids) if one is not None}
        if self._pid not in seen:
            return None
        # The earlier CPU time of a newly seen child does not belong to this interval.
        spent = sum(ticks - self._ticks.get(pid, ticks if self._ticks else 0) for pid, (ticks, _) in seen.items())
        cpu = spent / _TICKS / max(now - self._at, 0.01)
        self._ticks, self._at = {pid: ticks for pid, (ticks, _) in seen.items()}, now
        return cpu, sum(rss for _, rss in seen.values())


class Sampler(threading.Thread):
    def __init__(
        self, ranks: Ranks, *, outbox: Outbox, wake: Callable[[], None], trouble: Callable[[str], None]
    ) -> None:
        super().__init__(name="sampler", daemon=True)
        self._ranks, self._outbox, self._wake, self._trouble = ranks, outbox, wake, trouble
        self._nvml = nvml.Nvml()
        self._usages: dict[int, ProcessUsage] = {}
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            try:
                self._sample_all()
            except Exception as error:  # the outermost loop of this thread
                self._trouble(f"no sample: {type(error).__name__}: {error}")

    def _sample_all(self) -> None:
        running = self._ranks.running()
        self._usages = {pid: usage for pid, usage in self._usages.items() if pid in [one.pid for one in running]}
        found = [self._sample(one) for one in running]
        self._ranks.look_for_lonely()
        if any(found):
            self._wake()

    def _sample(self, one: Rank) -> bool:
        try:
            usage = self._usages.setdefault(one.pid, self._usages.get(one.pid) or ProcessUsage(one.pid))
        except OSError:  # gone since `running` was called
            return False
        measured = usage.measure(now=time.clock_gettime(time.CLOCK_BOOTTIME))
        if measured is None:
            return False
        gpu = self._nvml.reading(nvml.device_of(one.local_rank, visible=one.visible))
        cpu, rss_bytes = measured
        more = {
            "gpu_mem_total_bytes": gpu.memory_total, "gpu_watts": gpu.watts, "gpu_celsius": gpu.celsius,
            "gpu_ecc_errors": gpu.ecc_errors, "gpu_xid": gpu.xid,
        }  # fmt: skip
        self._outbox.item("sample", rank=one.rank, at=time.time(), cpu=cpu, rss_bytes=rss_bytes, gpu=gpu.utilisation,
                          gpu_mem_bytes=gpu.memory, **{name: value for name, value in more.items() if value is not None})  # fmt: skip
        return True


def _usage(pid: int) -> tuple[int, int] | None:
    """Return CPU ticks and resident bytes of one process (proc(5): utime, stime, rss).

    None where it is gone or has ended.
    """
    try:
        fields = linux.stat_fields(pid)
        pages = int(fields[21])  # 0: it released its memory, and waits to be reaped
        return (int(fields[11]) + int(fields[12]), pages * _PAGE_BYTES) if pages else None
    except (OSError, IndexError, ValueError):
        return None
