"""JSON bodies of /api/v1, read strictly: what no column, no log and no answer of ours can hold is refused as 400, at its field."""

import json
import math
from collections.abc import Iterator
from typing import Any

from rest_framework.parsers import JSONParser

from .errors import Problem, Unreadable

MAX_DEPTH = 32  # a job's description needs 3
_SECRET = ("secrets", "password", "code")  # what they hold is in no complaint


class StrictJSONParser(JSONParser):
    """DRF's calls Infinity, half characters and a thousand brackets JSON, or fails on them."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        found = loads(stream.read())
        refuse_unfit(found)
        return found


def loads(data: bytes, **hooks: Any) -> Any:
    try:
        return json.loads(data.decode(), **hooks)
    except RecursionError as error:
        raise _too_deep("body") from error
    except ValueError as error:
        raise Unreadable(Problem("body", None, f"is no JSON: {error}; send an object in UTF-8")) from error


def refuse_unfit(found: Any) -> None:
    """Raises Unreadable for the first value that is JSON to Python and to nobody else."""
    for field, value, depth in _walk(found):
        if depth > MAX_DEPTH:
            raise _too_deep(field.partition(".")[0])
        if words := _complaint(value):
            raise Unreadable(Problem(field, None if field.startswith(_SECRET) else value, words))


def text_complaint(text: str) -> str:
    """Why Postgres can not keep this text; "" when it can."""
    if "\0" in text:
        return "holds a NUL character, which no text here can; leave it out"
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        return "holds half of a surrogate pair, which is no character; send whole ones"
    return ""


def _complaint(value: Any) -> str:
    if isinstance(value, str):
        return text_complaint(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "is no finite number, and JSON has no other; leave it out"
    return ""


def _walk(found: Any) -> Iterator[tuple[str, Any, int]]:
    """Every value and key with its dotted field, in order; on a list of its own, since depth is what may be wrong."""
    left = [("", found, 0)]
    while left:
        field, value, depth = left.pop()
        yield field or "body", value, depth
        if depth > MAX_DEPTH:
            continue
        if isinstance(value, dict):
            for key in value:
                yield f"{field}.{key}".lstrip("."), key, depth
            inner = [(f"{field}.{key}".lstrip("."), one, depth + 1) for key, one in value.items()]
        elif isinstance(value, list):
            inner = [(f"{field}.{at}".lstrip("."), one, depth + 1) for at, one in enumerate(value)]
        else:
            continue
        left.extend(reversed(inner))


def _too_deep(field: str) -> Unreadable:
    return Unreadable(Problem(field, None, f"is nested deeper than {MAX_DEPTH} levels; send it flatter"))
