"""Resource vectors: how much of each countable resource, as whole numbers. Pure.

A vector maps a resource name to a count: `{"gpu": 8}` or `{"cpu": 4}`. On machines without accelerators a CPU slot
stands for the place of one training process, so that the same arithmetic holds.
"""

import re
from collections.abc import Mapping

Resources = Mapping[str, int]

# Suffixes of Kubernetes quantities (apimachinery, resource.Quantity), as factors of the base unit.
_FACTORS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(k|M|G|T|Ki|Mi|Gi|Ti)?\Z")


def parse_bytes(text: str) -> int:
    """Return the bytes of a quantity such as "512Gi" or "1.5G"; raises ValueError for anything else."""
    found = _QUANTITY.match(text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a quantity; write a number with Ki, Mi, Gi, Ti, k, M, G or T")
    return int(float(found[1]) * _FACTORS[found[2] or ""])


def add(left: Resources, right: Resources) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}}


def subtract(left: Resources, right: Resources) -> dict[str, int]:
    return {name: left.get(name, 0) - right.get(name, 0) for name in {*left, *right}}


def fits(asked: Resources, free: Resources) -> bool:
    """Return whether every requested count is free; a resource missing from `free` counts as zero."""
    return all(count <= free.get(name, 0) for name, count in asked.items())


def describe(resources: Resources) -> str:
    """Describe resources for people: "8 GPUs" or "4 CPU slots"."""
    words = {"gpu": ("GPU", "GPUs"), "cpu": ("CPU slot", "CPU slots")}
    parts = []
    for name, count in sorted(resources.items()):
        one, many = words.get(name, (name, name))
        parts.append(f"{count} {one if count == 1 else many}")
    return " and ".join(parts) or "nothing"
