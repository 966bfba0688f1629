"""Who uses something by its name. Layers above register how to find out, so that what they use need not import them."""

from collections.abc import Callable
from typing import Any

Find = Callable[[Any, str], list[str]]
_finders: dict[str, list[Find]] = {}


def register(kind: str, find: Find) -> None:
    """Let `find(team, name)` answer for things of one kind, as phrases such as "job train"."""
    if find not in _finders.setdefault(kind, []):
        _finders[kind].append(find)


def of(kind: str, *, team: Any, name: str) -> list[str]:
    """Return who uses it, as phrases."""
    return [phrase for find in _finders.get(kind, ()) for phrase in find(team, name)]
