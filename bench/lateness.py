"""How late committed rows are behind a bare watch of the same pods. Pure."""

import bisect
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .changing import WORD
from .row_news import RowChange


@dataclass(frozen=True)
class Heard:
    """One change of a pod, as the bare watch received it."""

    at: float
    pod: str
    number: int


def heard(lines: Iterable[bytes]) -> list[Heard]:
    found = []
    for line in lines:
        at, _, event = line.partition(b"\t")
        pod = json.loads(event)["object"]
        message = next(
            (one.get("message", "") for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"), ""
        )
        if message.startswith(WORD):
            found.append(Heard(float(at), pod["metadata"]["name"], int(message.split()[1])))
    return found


def behind(changes: Iterable[Heard], rows: Iterable[RowChange]) -> tuple[list[float], int]:
    """(seconds behind the watch of each change, how many never came). A row that holds a later change holds this one too."""
    by_pod: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row.reason.startswith(WORD):
            by_pod.setdefault(row.pod, []).append((int(row.reason.split()[1]), row.at))
    for one in by_pod.values():
        one.sort()
    late, lost = [], 0
    for change in changes:
        numbers = by_pod.get(change.pod, [])
        place = bisect.bisect_left(numbers, (change.number, 0.0))
        if place == len(numbers):
            lost += 1
        else:
            late.append(min(at for _, at in numbers[place:]) - change.at)
    return late, lost


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
