"""The nodes of a framework's own cluster, such as Ray's: what each has and uses, as the head's agent reports it. Pure."""

from collections.abc import Mapping
from typing import Any

from .batch import Item

MOST_NODES = 1000
MOST_NAME = 80  # characters; a node of a replica has the replica's name
MOST_AMOUNT = 2.0**60
AMOUNTS = ("cpu", "gpu", "object_store_bytes")  # each [in use, in total]
COUNTS = ("actors",)
TOTALS = ("waiting", "actors_waiting")  # requests for resources, and actors, that have no place yet


def read(item: Item) -> dict[str, Any]:
    """Return what is stored of an item `nodes`. Raises InvalidInput naming the field that is wrong."""
    given = item.fields.get("nodes")
    if not isinstance(given, list) or len(given) > MOST_NODES or not all(isinstance(one, dict) for one in given):
        raise item.wrong("nodes", None, f"must be a list of at most {MOST_NODES} objects")
    nodes = [_node(Item(item.kind, one)) for one in given]
    totals = {name: number for name in TOTALS if (number := item.optional(name, 0)) is not None}
    return {"framework": item.text("framework", MOST_NAME), "nodes": nodes, **totals}


def _node(item: Item) -> dict[str, Any]:
    amounts = {name: pair for name in AMOUNTS if (pair := _pair(item, name)) is not None}
    counts = {name: number for name in COUNTS if (number := item.optional(name, 0)) is not None}
    return {"name": item.text("name", MOST_NAME), **amounts, **counts}


def _pair(item: Item, name: str) -> list[float] | None:
    """Return [in use, in total]."""
    value = item.fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise item.wrong(name, None, "must be [in use, in total]")
    numbers = [Item(item.kind, {name: one}).real(name) for one in value]
    if any(one is None or not 0 <= one <= MOST_AMOUNT for one in numbers):
        raise item.wrong(name, None, f"must be numbers from 0 to {MOST_AMOUNT:g}")
    return [one for one in numbers if one is not None]


def sums(nodes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the amounts and counts of all nodes together; only those that some node has."""
    found: dict[str, Any] = {}
    for one in nodes["nodes"]:
        for name in AMOUNTS:
            if name in one:
                before = found.get(name, [0, 0])
                found[name] = [before[0] + one[name][0], before[1] + one[name][1]]
        for name in COUNTS:
            if name in one:
                found[name] = found.get(name, 0) + one[name]
    return found
