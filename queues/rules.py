"""Limits of a queue: how large, long and urgent its jobs may be, and how much of it one user and one month may use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import Problem
from common.text import format_duration

from .models import Queue
from .resources import describe

MOST_SLOTS = 1_000_000
MOST_HOURS = 1_000_000_000
PRIORITIES = (-1000, 1000)


@dataclass(frozen=True)
class Rule:
    """A column of a queue that is a whole number from `least` to `most`, or null where there is no limit."""

    name: str
    least: int
    most: int
    label: str
    words: str


RULES = (
    Rule("highest_priority", *PRIORITIES, "Highest priority", "that its jobs may have"),
    Rule("largest_job", 1, MOST_SLOTS, "Largest job", "how many slots one of its jobs may take"),
    Rule("longest_seconds", 1, 365 * 86400, "Longest job, seconds", "the longest deadline of its jobs; those without one get it"),
    Rule("slots_per_user", 1, MOST_SLOTS, "Slots of one user", "how many slots the jobs of one user may hold at once"),
    Rule("budget_hours", 0, MOST_HOURS, "Budget of a month, hours", "how many hours times slots its jobs may use in a calendar month (UTC) before no more start"),
)  # fmt: skip
NAMES = tuple(rule.name for rule in RULES)
ASK = "or ask an administrator of the team to raise the limit"


def problems_in(values: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the limits among these fields of a queue."""
    found = []
    for rule in RULES:
        value = values.get(rule.name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or not rule.least <= value <= rule.most
        ):
            words = f"must be a whole number from {rule.least} to {rule.most}, or null for no limit"
            found.append(Problem(rule.name, value, words))
    return found


def priority_problems(queue: Queue, priority: Any) -> list[Problem]:
    """Return why a queue takes no job of this priority; empty if it does."""
    least, most = PRIORITIES
    if isinstance(priority, bool) or not isinstance(priority, int) or not least <= priority <= most:
        return [Problem("priority", priority, f"must be a whole number from {least} to {most}; 0 is usual")]
    if queue.highest_priority is None or priority <= queue.highest_priority:
        return []
    words = f"is above {queue.highest_priority}, the highest of queue {queue.name}; lower it, {ASK}"
    return [Problem("priority", priority, words)]


def refusals(queue: Queue, *, priority: int, deadline_seconds: int | None, slots: int) -> list[Problem]:
    """Return why a queue does not take a job as it is asked for; empty if it does."""
    found = priority_problems(queue, priority)
    longest = queue.longest_seconds
    if longest is not None and (deadline_seconds is None or deadline_seconds > longest):
        words = f"is longer than {longest} ({format_duration(longest)}), the longest of queue {queue.name}; shorten it, {ASK}"
        found.append(Problem("deadline_seconds", deadline_seconds, words))
    for limit, whose in ((queue.largest_job, "a job"), (queue.slots_per_user, "the jobs of one user")):
        if limit is not None and slots > limit:
            needs, most = describe({queue.resource: slots}), describe({queue.resource: limit})
            words = f"needs {needs}, but {whose} may take {most} in queue {queue.name}; lower nodes or nproc_per_node, {ASK}"
            found.append(Problem("nodes", slots, words))
            break
    return found
