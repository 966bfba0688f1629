"""Resource vectors: how much of each countable resource, as whole numbers. Pure.

A vector maps a resource name to a count: `{"gpu": 8}` or `{"cpu": 4}`. On machines without accelerators a CPU slot
stands for the place of one training process, so that the same arithmetic holds.
"""

from collections.abc import Mapping

Resources = Mapping[str, int]


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
