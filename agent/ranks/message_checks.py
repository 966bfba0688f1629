"""Whether a message on the report socket is usable. Any process of a job may write there. Pure.

What the control plane would refuse must not get into a batch: the batch would be sent again without every item of that
kind, and so without the ends of other ranks, whose reports were valid.
"""

from __future__ import annotations

import math
from typing import Any, Callable

LARGEST = 2**31 - 1  # the largest rank, count or exit code that the control plane stores
LONGEST = 4096  # characters of a text
MOST_NODES = 1000  # of a framework's own cluster (jobs/core/nodes.py)
AMOUNTS = ("cpu", "gpu", "object_store_bytes")  # of a node, each [in use, in total]
WAITING = ("waiting", "actors_waiting")  # counts of the whole cluster


def is_fit(message: Any) -> bool:
    """Accept a metrics point, or an object of a kind below whose fields that the agent reads have the right types."""
    if isinstance(message, list):
        return len(message) == 3 and _is_time(message[0]) and _is_step(message[1]) and isinstance(message[2], dict)
    if not isinstance(message, dict):
        return False
    kind = next((one for one in _KINDS if one in message), None)
    return kind is not None and _KINDS[kind](message)


def _is_whole(value: Any, least: int = -LARGEST, most: int = LARGEST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_count(value: Any) -> bool:
    return value is None or _is_whole(value, 0)


def _is_text(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= LONGEST)


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 <= value < 2**40


def _is_step(value: Any) -> bool:
    """Accept any integer; the control plane leaves out absurd ones."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _is_hello(message: dict[str, Any]) -> bool:
    hello = message["hello"]
    return (
        isinstance(hello, dict)
        and _is_whole(hello.get("rank"))
        and _is_whole(hello.get("local_rank"), 0)
        and all(_is_count(hello.get(name)) for name in ("world_size", "local_size", "launcher", "restart"))
        and _is_text(hello.get("visible"))
        and hello.get("is_quiet") in (None, False, True)
    )


def _is_announcement(message: dict[str, Any]) -> bool:
    who = message["announce"]
    return (
        isinstance(who, dict)
        and (who.get("rank") is None or _is_whole(who["rank"]))
        and _is_count(who.get("local_rank"))
        and _is_whole(who.get("pid"), 1)
        and _is_text(who.get("visible"))
    )


def _is_end(message: dict[str, Any]) -> bool:
    end = message["end"]
    return (
        isinstance(end, dict)
        and _is_time(message.get("at"))
        and (end.get("exit_code") is None or _is_whole(end["exit_code"]))
        and (end.get("signal") is None or _is_whole(end["signal"], 1, 1000))
        and {"exit_code", "signal"} <= set(end)
    )


def _is_nodes(message: dict[str, Any]) -> bool:
    report = message["nodes"]
    return (
        isinstance(report, dict)
        and isinstance(report.get("nodes"), list)
        and len(report["nodes"]) <= MOST_NODES
        and all(_is_node(one) for one in report["nodes"])
        and _is_text(report.get("framework"))
        and all(_is_count(report.get(name)) for name in WAITING)
    )


def _is_node(node: Any) -> bool:
    return (
        isinstance(node, dict)
        and isinstance(node.get("name"), str)
        and _is_text(node["name"])
        and all(_is_pair(node.get(name)) for name in AMOUNTS)
        and _is_count(node.get("actors"))
    )


def _is_pair(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(_is_amount(one) for one in value))


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 2**60


# In the order in which the agent looks for them (ranks.py), as a message may have several.
_KINDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "hello": _is_hello,
    "announce": _is_announcement,
    "dropped": lambda message: _is_whole(message["dropped"], 0),
    "nodes": _is_nodes,
    "pid": lambda message: _is_whole(message["pid"], 1) and _is_time(message.get("at")),
    "signalled": lambda message: True,
    "end": _is_end,
}
