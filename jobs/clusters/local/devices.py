"""Which GPUs of this machine each local replica sees. Pure, but for the one look at the machine.

An attempt holds its devices from its first `apply` until it is over, so one device never serves two that live.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

RESOURCE = "gpu"  # in a queue's word
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Numbers mean the same device to CUDA, which would otherwise count the fastest first, and to NVML.
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

Held = Mapping[str, Mapping[str, Sequence[str]]]  # attempt -> replica -> devices


class NotEnough(Exception):
    """In words; `is_final` where even the whole machine has too few."""

    def __init__(self, words: str, *, is_final: bool) -> None:
        super().__init__(words)
        self.is_final = is_final


def of_this_machine(environ: Mapping[str, str] = os.environ, dev: Path = Path("/dev")) -> list[str]:
    """Words for CUDA_VISIBLE_DEVICES. Where the server's own environment names some, only those."""
    count = len(list(dev.glob("nvidia[0-9]*")))
    named = environ.get(VISIBLE)
    if named is None:
        return [str(number) for number in range(count)]
    return [word.strip() for word in named.split(",") if word.strip()] if count else []


def assign(held: Held, attempt: str, wanted: Mapping[str, int], there: Sequence[str]) -> dict[str, list[str]]:
    """Replica to devices, for so many each; what the attempt holds already stays. Raises NotEnough."""
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
            f"needs {_gpus(asked)}; free are {len(free)} of {len(there)}, the others belong to {holders}",
            is_final=False,
        )
    found = {}
    for replica, count in wanted.items():
        found[replica], free = free[:count], free[count:]
    return found


def environment(devices: Sequence[str]) -> dict[str, str]:
    """What a replica with exactly these is told; with none it sees none."""
    return {VISIBLE: ",".join(devices), **(ORDER if devices else {})}


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
