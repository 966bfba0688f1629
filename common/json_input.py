"""JSON bodies of /api/v1, read strictly: what no column, no log and no answer of ours can hold is refused as 400, at its field."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from rest_framework.parsers import JSONParser

from .errors import Problem, Unreadable

MAX_DEPTH = 32  # a job's description needs 3
MAX_VALUES = 1_000_000  # a workspace's most files, 100,000, with their fields; a value takes up to 200 bytes of memory
_HALF = re.compile("[\ud800-\udfff]")
_SECRET = ("secrets", "password", "code")  # what they hold is in no complaint


class StrictJSONParser(JSONParser):
    """DRF's calls Infinity, half characters and a thousand brackets JSON, or fails on them."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        found = loads(stream.read())
        refuse_unfit(found)
        return found


def loads(data: bytes, **hooks: Any) -> Any:
    # Each value has one of these before it, so what takes far more memory than its text is refused before it is built.
    if len(data) > MAX_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Unreadable(Problem("body", None, f"holds more than {MAX_VALUES:,} values; send fewer at once"))
    try:
        return json.loads(data.decode(), **hooks)
    except RecursionError as error:
        raise _too_deep("body") from error
    except ValueError as error:
        raise Unreadable(Problem("body", None, f"is no JSON: {error}; send an object in UTF-8")) from error


def refuse_unfit(found: Any) -> None:
    """Raises Unreadable for the first value that is JSON to Python and to nobody else.

    A list of its own in place of recursion, since depth is what may be wrong. A field's name is put together only for a
    complaint: kept for each value, a long key above a long list would take their product.
    """
    _refuse_odd(found, [])
    way: list[object] = []  # keys and indexes that lead to the container at the end of `left`
    left = [_inside(found)]
    while left:
        for place, value in left[-1]:
            if len(left) > MAX_DEPTH:
                raise _too_deep(str(way[0]))
            if isinstance(place, str):
                _refuse_odd(place, [*way, place])
            if isinstance(value, dict | list):
                way.append(place)
                left.append(_inside(value))
                break
            if isinstance(value, str | float):
                _refuse_odd(value, [*way, place])
        else:
            left.pop()
            del way[-1:]


def text_complaint(text: str) -> str:
    """Why Postgres cannot keep this text; "" when it can."""
    if "\0" in text:
        return "holds a NUL character, which no text here can; leave it out"
    if not text.isascii() and _HALF.search(text):
        return "holds half of a surrogate pair, which is no character; send whole ones"
    return ""


def _complaint(value: Any) -> str:
    if isinstance(value, str):
        return text_complaint(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "is no finite number, and JSON has no other; leave it out"
    return ""


def _inside(value: Any) -> Iterator[tuple[object, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return enumerate(value) if isinstance(value, list) else iter(())


def _refuse_odd(value: Any, way: list[object]) -> None:
    if words := _complaint(value):
        field = ".".join(map(str, way)).lstrip(".") or "body"
        raise Unreadable(Problem(field, None if field.startswith(_SECRET) else value, words))


def _too_deep(field: str) -> Unreadable:
    return Unreadable(Problem(field, None, f"is nested deeper than {MAX_DEPTH} levels; send it flatter"))
