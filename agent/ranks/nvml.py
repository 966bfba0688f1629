"""Read a rank's GPU from NVIDIA's management library. Every failure means no numbers, never an exception.

Source: NVML API reference, device queries and event handling. MIG instances have memory but no utilisation.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple, Optional

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_ENV = "MUSTER_NVML_LIBRARY"
SUCCESS = 0
TEMPERATURE_GPU = 0  # NVML_TEMPERATURE_GPU
UNCORRECTED, SINCE_LOAD = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
XID = 8  # nvmlEventTypeXidCriticalError
MOST_EVENTS = 16  # taken at one reading


class GpuReading(NamedTuple):
    """What is not known is None. `ecc_errors`: uncorrected ones since the driver was loaded; `xid`: the last critical error."""

    utilisation: Optional[float] = None  # 0 to 1
    memory: Optional[int] = None  # bytes in use
    memory_total: Optional[int] = None
    watts: Optional[float] = None
    celsius: Optional[float] = None
    ecc_errors: Optional[int] = None
    xid: Optional[int] = None


NOTHING = GpuReading()


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint),
    ]  # fmt: skip


class Nvml:
    """Loaded at the first reading. Not thread-safe."""

    def __init__(self) -> None:
        self._library: Any = None
        self._is_tried = False
        self._handles: dict[str, Any] = {}
        self._events: Any = None  # one set for all devices
        self._xids: dict[Optional[int], int] = {}  # the last one of each device, by its handle

    def reading(self, device: str | None) -> GpuReading:
        """Return a device's reading.

        `device`: an index, or a GPU's or MIG instance's UUID; None for a rank without a GPU.
        """
        if device is None:
            return NOTHING
        try:
            handle = self._handle(device)
            return NOTHING if handle is None else self._read(handle)
        except Exception:  # foreign code behind ctypes: a GPU number is never worth a failure
            return NOTHING

    def _read(self, handle: Any) -> GpuReading:
        used, total = self._memory(handle)
        watts, celsius = ctypes.c_uint(), ctypes.c_uint()
        errors = ctypes.c_ulonglong()
        has_watts = self._ask("nvmlDeviceGetPowerUsage", handle, ctypes.byref(watts))
        has_celsius = self._ask("nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU, ctypes.byref(celsius))
        has_errors = self._ask("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, SINCE_LOAD, ctypes.byref(errors))
        self._take_events()
        return GpuReading(
            self._utilisation(handle),
            used,
            total,
            watts.value / 1000 if has_watts else None,  # NVML counts milliwatts
            float(celsius.value) if has_celsius else None,
            int(errors.value) if has_errors else None,
            self._xids.get(handle.value),
        )

    def _ask(self, name: str, *words: Any) -> bool:
        """Call a function; return whether the device and this version of the library have what it reports."""
        function = getattr(self._library, name, None)
        return function is not None and function(*words) == SUCCESS

    def _watch(self, handle: Any) -> None:
        """Have critical errors of a device reported from now on, where it can."""
        if self._events is None:
            events = ctypes.c_void_p()
            self._events = events if self._ask("nvmlEventSetCreate", ctypes.byref(events)) else False
        if self._events:
            self._ask("nvmlDeviceRegisterEvents", handle, ctypes.c_ulonglong(XID), self._events)

    def _take_events(self) -> None:
        event = _Event()
        for _ in range(MOST_EVENTS if self._events else 0):
            if not self._ask("nvmlEventSetWait_v2", self._events, ctypes.byref(event), ctypes.c_uint(0)):
                return
            if event.type == XID:
                self._xids[event.device] = int(event.data)

    def _utilisation(self, handle: Any) -> float | None:
        rates = _Utilization()
        if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) != SUCCESS:
            return None
        return min(1.0, rates.gpu / 100)

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        memory = _Memory()
        if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != SUCCESS:
            return None, None
        return int(memory.used), int(memory.total)

    def _handle(self, device: str) -> Any:
        if device not in self._handles and self._load() is not None:
            self._handles[device] = self._find(device)
            if self._handles[device] is not None:
                self._watch(self._handles[device])
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
