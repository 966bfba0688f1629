"""Read untrusted objects: malformed content becomes empty values, never an exception. Pure."""

import re
from typing import Any

from msgspec import Struct

from common.text import CONTROL, REORDERING, SURROGATES

LONGEST_WORDS = 500
_HOSTILE = re.compile(rf"[{CONTROL}{REORDERING}{SURROGATES} \xa0\ufeff]+")
_SMALLEST, _LARGEST = -(1 << 31), (1 << 31) - 1


def get(thing: Any, *keys: str) -> Any:
    """Return a nested value of plain JSON, or of one of the shapes (decode.py); None if it is missing."""
    for key in keys:
        if isinstance(thing, dict):
            thing = thing.get(key)
        elif isinstance(thing, Struct):
            thing = getattr(thing, key, None)
        else:
            return None
    return thing


def is_object(thing: Any) -> bool:
    return isinstance(thing, (Struct, dict))


def items(thing: Any) -> list[Any]:
    return thing if isinstance(thing, list) else []


def text(thing: Any) -> str:
    return thing if isinstance(thing, str) else ""


def whole(thing: Any) -> int | None:
    """Return an integer that fits in a column, else None."""
    is_number = isinstance(thing, int) and not isinstance(thing, bool)
    return thing if is_number and _SMALLEST <= thing <= _LARGEST else None


def words(thing: Any, *, most: int = LONGEST_WORDS) -> str:
    """Return foreign text as one short, harmless line. It is cut before it is searched: it may have megabytes.

    The middle is cut: Go programs write the cause of an error behind what wraps it.
    """
    whole = text(thing)
    near = whole if len(whole) <= 4 * most else f"{whole[: 2 * most]}{whole[-2 * most :]}"
    line = _HOSTILE.sub(" ", near).strip()
    end = most // 3
    return line if len(line) <= most else f"{line[: most - end - 1]}…{line[-end:]}"


def condition(status: Any, kind: str) -> Any:
    for one in items(get(status, "conditions")):
        if get(one, "type") == kind:
            return one
    return None


def version(meta: Any) -> int:
    """Return the resource version, which orders states of the same object; 0 if it is missing or malformed."""
    number = get(meta, "resourceVersion")
    return int(number) if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 20 else 0
