"""Assign this machine's GPUs to local replicas. Pure, except for reading the machine's devices.

An attempt holds its devices from its first `apply` until it is over, so two living attempts never share one.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

RESOURCE = "gpu"  # a queue's resource name
VISIBLE = "CUDA_VISIBLE_DEVICES"
# With this order the numbers mean the same to CUDA, which would otherwise count the fastest first, and to NVML.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

Held = Mapping[str, Mapping[str, Sequence[str]]]  # attempt -> replica -> devices


class NotEnough(Exception):
    """Too few GPUs, with a message; `is_final` if even the whole machine has too few."""

    def __init__(self, words: str, *, is_final: bool) -> None:
        super().__init__(words)
        self.is_final = is_final


def of_this_machine(environ: Mapping[str, str] = os.environ, dev: Path = Path("/dev")) -> list[str]:
    """Return entries for CUDA_VISIBLE_DEVICES. If the server's own environment names some, only those."""
    count = len(list(dev.glob("nvidia[0-9]*")))
    named = environ.get(VISIBLE)
    if named is None:
        return [str(number) for number in range(count)]
    return [word.strip() for word in named.split(",") if word.strip()] if count else []


def assign(held: Held, attempt: str, wanted: Mapping[str, int], *, there: Sequence[str]) -> dict[str, list[str]]:
    """Return each replica's devices, as many as `wanted`; an attempt keeps what it already holds. Raises NotEnough."""
    if attempt in held:
        return {replica: list(words) for replica, words in held[attempt].items()}
    asked = sum(wanted.values())
    if asked > len(there):
        raise NotEnough(f"needs {_gpus(asked)}, and this machine has {len(there)}", is_final=True)
    taken = {word: other for other, replicas in held.items() for words in replicas.values() for word in words}
    free = [word for word in there if word not in taken]
    if asked > len(free):
        holders = ", ".join(sorted({taken[word] for word in there if word in taken}))
        raise NotEnough(
            f"needs {_gpus(asked)}; free are {len(free)} of {len(there)}, the others are held by {holders}",
            is_final=False,
        )
    found = {}
    for replica, count in wanted.items():
        found[replica], free = free[:count], free[count:]
    return found


def environment(devices: Sequence[str]) -> dict[str, str]:
    """Return the variables of a replica with exactly these devices; with none it sees none."""
    return {VISIBLE: ",".join(devices), **(ORDER if devices else {})}


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
