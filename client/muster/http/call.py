"""One request of the REST API (/api/v1) and how its answer is read, without any I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Generic, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from muster.http.model import Json

T = TypeVar("T")

PAGE_SIZE = 100


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    path: str
    parse: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = False  # sent without a token
    is_repeatable: bool = False  # idempotent, so it may be retried
    wait_seconds: float = 0  # how long the server may hold the answer back, on top of the usual timeout
    tries: int = 5
    patience_seconds: float = 0  # keep retrying, beyond `tries`, until this long has been spent in pauses
    missing: str = ""  # what a 404 means here, with what to do about it
    accepted: tuple[int, ...] = ()  # statuses that are answers too, not errors
    is_raw: bool = False  # the answer is passed to `parse` as bytes
    on_sent: Callable[[float], None] | None = None  # called with the share of the content sent so far


@dataclass(frozen=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next: Call[Page[T]] | None


def get(path: str, *, parse: Callable[[Any], T], params: Mapping[str, Any] | None = None, missing: str = "") -> Call[T]:
    return Call("GET", path, parse, params or {}, is_repeatable=True, missing=missing)


def page(path: str, *, parse: Callable[[Any], T], missing: str = "", **params: Any) -> Call[Page[T]]:
    def read(answer: Json) -> Page[T]:
        following = answer.get("next")
        # Only the query of `next` is used: a server behind a proxy may not know its own address, and the token must
        # never go to another one.
        query = dict(parse_qsl(urlsplit(following).query)) if following else {}
        items = tuple(parse(item) for item in answer["results"])
        return Page(items, page(path, parse=parse, missing=missing, **query) if following else None)

    return Call("GET", path, read, given(**params), is_repeatable=True, missing=missing)


def page_size(limit: int | None) -> int:
    return PAGE_SIZE if limit is None else max(1, min(limit, PAGE_SIZE))


def given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def place(*parts: object) -> str:
    """Return a path of these parts; each is quoted, so that no input can reach another path."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def nothing(answer: Any) -> None:
    """Parse an answer without content."""
