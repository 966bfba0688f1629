"""Parse the agent's batch format strictly: data from a replica is untrusted until it is parsed. Pure.

See docs/wire.md, section 2. Raises InvalidInput naming the item and field that is wrong.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import InvalidInput, Problem

MAX_BATCH_BYTES = 8 * 2**20
MAX_ITEMS = 10_000
MAX_SEGMENT_RAW_BYTES = 16 * 2**20
MOST_LAST_WORDS = {"traceback": 32_000, "stderr": 8_000, "stdout": 4_000}  # characters of a failed rank's output
MOST_REAL = 1e300  # for any number: JSON has no limit, and a comparison with this bound also excludes NaN
KINDS = frozenset(
    {"replica", "rank", "log", "gap", "metrics", "sample", "nodes", "folder", "alone", "volumes", "checkpoints"}
)
LAUNCHER = -1  # the rank number of the launcher's own output


@dataclass(frozen=True)
class Item:
    """One item: its kind, its fields as sent, and for log segments the bytes that belong to it."""

    kind: str
    fields: Mapping[str, Any]
    blob: bytes = b""

    def number(self, name: str, least: float = 0, most: float = 2**53) -> int:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _wrong(f"{self.kind}.{name}", value, f"must be a whole number from {least} to {most}")
        return value

    def whole(self, name: str) -> int:
        """Return a whole number of any size."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(f"{self.kind}.{name}", value, "must be a whole number")
        return value

    def optional(self, name: str, least: float = -(2**31), most: float = 2**53) -> int | None:
        return None if self.fields.get(name) is None else self.number(name, least, most)

    def real(self, name: str) -> float | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST_REAL:
            raise _wrong(f"{self.kind}.{name}", value, "must be a number")
        return float(value)

    def text(self, name: str, most: int = 2000) -> str:
        value = self.fields.get(name) or ""
        if not isinstance(value, str):
            raise _wrong(f"{self.kind}.{name}", value, "must be text")
        return clean(value[:most])

    def flag(self, name: str) -> bool:
        return self.fields.get(name) is True

    def wrong(self, name: str, value: object, words: str) -> InvalidInput:
        """Return the error for one of its fields."""
        return _wrong(f"{self.kind}.{name}", value, words)


@dataclass(frozen=True)
class Batch:
    seq: int
    sent_at: float
    items: tuple[Item, ...]


def parse(body: bytes) -> Batch:
    if len(body) > MAX_BATCH_BYTES:
        raise _wrong("body", len(body), f"must have at most {MAX_BATCH_BYTES} bytes; send smaller batches")
    header, rest = _split(body)
    items = header.get("items")
    if header.get("version") != 1:
        raise _wrong("version", header.get("version"), "is not 1; this agent is too new or too old")
    if not isinstance(items, list) or len(items) > MAX_ITEMS:
        raise _wrong("items", None, f"must be a list of at most {MAX_ITEMS}")
    head = Item("batch", header)
    return Batch(head.number("seq", 1), head.real("sent_at") or 0.0, _items(items, rest))


def last_words(item: Item) -> dict[str, Any] | None:
    """Return the end of a failed rank's output, as its agent cut it; None from an agent that does not send it."""
    given = item.fields.get("error")
    if not isinstance(given, dict):
        return None
    error = Item("rank.error", given)
    texts = {name: text for name, most in MOST_LAST_WORDS.items() if (text := error.text(name, most))}
    return {**texts, "oom_kills": error.optional("oom_kills", 0, 2**31 - 1)}


def clean(text: str) -> str:
    """Return text that Postgres can store: no NUL, no lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _split(body: bytes) -> tuple[dict[str, Any], bytes]:
    if len(body) < 4:
        raise _wrong("body", len(body), "is shorter than its own length field")
    (length,) = struct.unpack(">I", body[:4])
    if length > len(body) - 4:
        raise _wrong("header", length, "promises more bytes than the batch has")
    try:
        header = json.loads(body[4 : 4 + length])
    except (ValueError, RecursionError) as error:
        raise _wrong("header", None, f"is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise _wrong("header", None, "must be an object")
    return header, body[4 + length :]


def _items(raw: list[Any], rest: bytes) -> tuple[Item, ...]:
    items, offset = [], 0
    for entry in raw:
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            raise _wrong("items", None, "each must be an object with a kind")
        item = Item(entry["kind"], entry)
        if item.kind == "log":
            size = item.number("bytes", 0, MAX_BATCH_BYTES)
            item = Item(item.kind, entry, rest[offset : offset + size])
            offset += size
            if len(item.blob) != size:
                raise _wrong("log.bytes", size, "promises more bytes than the batch has")
        items.append(item)
    if offset != len(rest) and all(item.kind in KINDS for item in items):  # newer kinds may have bytes of their own
        raise _wrong("body", len(rest), f"has {len(rest) - offset} bytes that belong to no item")
    return tuple(items)


def _wrong(field: str, value: object, message: str) -> InvalidInput:
    return InvalidInput(Problem(field, value, message))
