"""What an agent says of the checkpoints in its job's folder, and which of them a request names. Pure."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from common.errors import InvalidInput, Problem

from .batch import Item

MOST = 1000  # of a job; agents send no more (agent/output/checkpoints.py)
MOST_NAME = 255
MOST_TIME = 2**35


@dataclass(frozen=True)
class Checkpoint:
    """A file or folder. `written_at`: when something in it was last written, in seconds since the epoch."""

    name: str
    step: int | None  # as its name says
    size: int | None  # bytes; None: not known
    written_at: float


@dataclass(frozen=True)
class Listing:
    """All that there were at a time, in seconds since the epoch."""

    at: float
    checkpoints: tuple[Checkpoint, ...]


def read(item: Item, *, at: float) -> Listing:
    """Return what an item says. Raises InvalidInput for what no row can hold."""
    given = item.fields.get("checkpoints")
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidInput(Problem("checkpoints.checkpoints", None, "must be a list of objects"))
    if len(given) > MOST:
        raise InvalidInput(Problem("checkpoints.checkpoints", len(given), f"are more than the {MOST} of a job"))
    found = (_read(Item("checkpoints", one)) for one in given)
    return Listing(at, tuple({one.name: one for one in found}.values()))


def _read(item: Item) -> Checkpoint:
    name = item.text("name", MOST_NAME)
    if not name:
        raise InvalidInput(Problem("checkpoints.name", None, "is missing"))
    written_at = float(item.number("written_at", most=MOST_TIME))
    return Checkpoint(name, item.optional("step", 0), item.optional("bytes", 0), written_at)


def missing_note(step: int, known: Iterable[int], *, job: int) -> str:
    """Say that a job has no checkpoint of a step, with the nearest that it has; empty where it has one, or none is known.

    A note and no refusal: agents look once a minute, and a program may name its checkpoints in a way of its own."""
    steps = sorted(set(known))
    if not steps or step in steps:
        return ""
    place = bisect_left(steps, step)
    near = " and ".join(str(one) for one in steps[max(0, place - 1) : place + 1])
    return f"job {job} has no checkpoint of step {step} that is known; the nearest: {near}"
