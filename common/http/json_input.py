"""Parse JSON bodies of /api/v1 strictly.

A value that no column, log or response can hold is refused as 400, at its field.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from rest_framework.parsers import JSONParser

from ..errors import Problem, Unreadable

MAX_DEPTH = 32  # a job's description needs 3
MAX_VALUES = 1_000_000  # fits the 100,000 files of the largest workspace; a value takes up to 200 bytes of memory
_HALF = re.compile("[\ud800-\udfff]")
_SECRET = ("secrets", "password", "code", "values")  # values of these fields appear in no error message


class StrictJSONParser(JSONParser):
    """A strict parser: DRF's accepts Infinity and lone surrogates as JSON, and fails on a thousand nested brackets."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        found = loads(stream.read())
        refuse_unfit(found)
        return found


def loads(data: bytes, **hooks: Any) -> Any:
    # Each value follows one of these characters, so input that would take far more memory than its text is refused
    # before it is built.
    if len(data) > MAX_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Unreadable(Problem("body", None, f"holds more than {MAX_VALUES:,} values; send fewer at once"))
    try:
        return json.loads(data.decode(), **hooks)
    except RecursionError as error:
        raise _too_deep("body") from error
    except ValueError as error:
        raise Unreadable(Problem("body", None, f"is not JSON: {error}; send an object in UTF-8")) from error


def refuse_unfit(found: Any) -> None:
    """Raise Unreadable for the first value that Python accepts as JSON but other parsers do not.

    Uses its own list in place of recursion, since depth may be the problem. A field's name is built only for an error:
    building it for every value, a long key above a long list would cost their product in memory.
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
    """Return why Postgres cannot store this text; "" if it can."""
    if "\0" in text:
        return "contains a NUL character, which no text may; remove it"
    if not text.isascii() and _HALF.search(text):
        return "contains half of a surrogate pair, which is not a character; send whole pairs"
    return ""


def _complaint(value: Any) -> str:
    if isinstance(value, str):
        return text_complaint(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number, and JSON has no others; remove it"
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
