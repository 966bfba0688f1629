"""Read a rank's GPU from NVIDIA's management library. Every failure means no numbers, never an exception.

Source: NVML API reference, device queries. MIG instances have memory but no utilisation.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional, Tuple

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_ENV = "MUSTER_NVML_LIBRARY"
SUCCESS = 0

Reading = Tuple[Optional[float], Optional[int]]  # utilisation 0..1, memory in bytes
NOTHING: Reading = (None, None)


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """Loaded at the first reading. Not thread-safe."""

    def __init__(self) -> None:
        self._library: Any = None
        self._is_tried = False
        self._handles: dict[str, Any] = {}

    def reading(self, device: str | None) -> Reading:
        """Return a device's reading.

        `device`: an index, or a GPU's or MIG instance's UUID; None for a rank without a GPU.
        """
        if device is None:
            return NOTHING
        try:
            handle = self._handle(device)
            return NOTHING if handle is None else (self._utilisation(handle), self._memory(handle))
        except Exception:  # foreign code behind ctypes: a GPU number is never worth a failure
            return NOTHING

    def _utilisation(self, handle: Any) -> float | None:
        rates = _Utilization()
        if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) != SUCCESS:
            return None
        return min(1.0, rates.gpu / 100)

    def _memory(self, handle: Any) -> int | None:
        memory = _Memory()
        if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != SUCCESS:
            return None
        return int(memory.used)

    def _handle(self, device: str) -> Any:
        if device not in self._handles and self._load() is not None:
            self._handles[device] = self._find(device)
        return self._handles.get(device)

    def _find(self, device: str) -> Any:
        handle = ctypes.c_void_p()
        if device.isdigit():
            code = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(device)), ctypes.byref(handle))
        else:
            code = self._library.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle))
        return handle if code == SUCCESS else None

    def _load(self) -> Any:
        if not self._is_tried:
            self._is_tried = True  # set first, so that a hanging or crashing driver is called only once
            library = ctypes.CDLL(os.environ.get(LIBRARY_ENV, LIBRARY))
            self._library = library if library.nvmlInit_v2() == SUCCESS else None
        return self._library


def device_of(local_rank: int, *, visible: str | None) -> str | None:
    """Return the LOCAL_RANK-th visible device. Never by process id: NVML reports those from outside the container.

    `visible` is CUDA_VISIBLE_DEVICES: unset means all, and the list ends at the first entry that names no device.
    """
    if visible is None:
        return str(local_rank)
    devices = []
    for word in (one.strip() for one in visible.split(",")):
        if not word.isdigit() and not word.startswith(("GPU-", "MIG-")):
            break
        devices.append(word)
    return devices[local_rank] if local_rank < len(devices) else None
