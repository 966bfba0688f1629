"""Who uses something by its name. Layers above register how to find out, so that what they use need not import them."""

from collections.abc import Callable
from typing import Any

from common.errors import Conflict
from common.text import listed

SHOWN = 5  # users that a refusal names
Find = Callable[[Any, str], list[str]]
_finders: dict[str, list[Find]] = {}


def register(kind: str, find: Find) -> None:
    """Let `find(team, name)` answer for things of one kind, as phrases such as "job train"."""
    if find not in _finders.setdefault(kind, []):
        _finders[kind].append(find)


def of(kind: str, *, team: Any, name: str) -> list[str]:
    """Return who uses it, as phrases."""
    return [phrase for find in _finders.get(kind, ()) for phrase in find(team, name)]


def refuse(kind: str, *, what: str, team: Any, name: str) -> None:
    """Raise Conflict, naming who would break, while somebody uses it. `what`: the word for it."""
    if users := of(kind, team=team, name=name):
        raise Conflict(f"{what} {name} is used by {listed(users, SHOWN)}; end or change these first", "name", name)
