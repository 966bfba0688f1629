"""Parse a server's answers into frozen values.

Fields that a newer server adds stay readable in `raw` and are otherwise ignored; fields that it leaves out, or answers
with null, take their default. So an old client reads a new server, and the other way round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timezone
from typing import Any, Callable, Optional, TypeVar

from muster.errors import UnexpectedAnswer

Json = Mapping[str, Any]
M = TypeVar("M", bound="Model")
Readers = tuple[tuple[str, Optional[Callable[[Any], Any]]], ...]

_KNOWN: dict[type, Readers] = {}


def as_time(text: str) -> datetime:
    """Return an aware datetime from ISO 8601; Python before 3.11 does not parse the Z."""
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def read(parse: Callable[[Any], Any], *, default: Any = None) -> Any:
    return field(default=default, metadata={"parse": parse})


def each(kind: type[M]) -> Any:
    """Declare a field that is a tuple of models."""
    return read(lambda items: tuple(kind.parse(item) for item in items), default=())


def moment() -> Any:
    return read(as_time)


def mapping() -> Any:
    # Not part of the hash: a dict has none, and a model should be usable as a key.
    return field(default_factory=dict, hash=False)


def unchanged() -> Any:
    return field(default_factory=dict, repr=False, compare=False)


class Model:
    @classmethod
    def parse(cls: type[M], answer: Any) -> M:
        """Parse an answer. Raises UnexpectedAnswer when an identifying field is missing, or a value cannot be read."""
        try:
            return cls(**cls._fields(answer))
        except (TypeError, ValueError, AttributeError) as error:
            message = f"the server sent a {cls.__name__} this client cannot read ({error}): update muster-client"
            raise UnexpectedAnswer(message) from error

    @classmethod
    def _fields(cls, answer: Json) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, parse in _known(cls):
            given = answer.get(name)
            if given is not None:
                values[name] = parse(given) if parse else given
        if "raw" in getattr(cls, "__dataclass_fields__", ()):
            values["raw"] = answer
        return values


def _known(kind: type) -> Readers:
    """Return the fields of a model and how each is parsed. Cached: a log has a model for every line."""
    if kind not in _KNOWN:
        fields = [known for known in dataclasses.fields(kind) if known.name != "raw"]
        _KNOWN[kind] = tuple((known.name, known.metadata.get("parse")) for known in fields)
    return _KNOWN[kind]
