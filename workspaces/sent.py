"""Validate what clients send as JSON: entries, paths, digests. Strict, and every problem at its field. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.errors import MOST_PROBLEMS, InvalidInput, Problem

from .manifest import EXECUTABLE, FILE, LINK, MAX_ENTRIES, Entry, entry_problems

_DIGEST = re.compile("[0-9a-f]{64}")
MOST_LEFT_OUT = 50
_LEFT_OUT = {"path", "files", "size", "is_whole"}
_KEYS = {"path", "kind", "size", "digest", "executable", "target"}
MAX_SIZE = 1 << 53  # the largest whole number that every JSON reader represents exactly


def entries(sent: Any) -> list[Entry]:
    """Return a manifest's `set`. Raises InvalidInput."""
    found = [_entry(item, at=f"set.{index}") for index, item in enumerate(_listed("set", sent))]
    problems = [problem for index, entry in enumerate(found) for problem in entry_problems(entry, at=f"set.{index}")]
    problems += _twice(found)
    if problems:
        raise InvalidInput(*problems[:MOST_PROBLEMS])
    return found


def paths(sent: Any) -> list[str]:
    """Return a manifest's `remove`. Raises InvalidInput."""
    return [_text(item, at=f"remove.{index}") for index, item in enumerate(_listed("remove", sent))]


def left_out(sent: Any) -> list[dict[str, Any]] | None:
    """Return what the sender left out, None where it does not say. Raises InvalidInput."""
    if sent is None:
        return None
    if not isinstance(sent, list) or len(sent) > MOST_LEFT_OUT:
        raise InvalidInput(Problem("left_out", str(sent)[:80], f"must be a list of at most {MOST_LEFT_OUT} items"))
    found = []
    for index, item in enumerate(sent):
        at = f"left_out.{index}"
        if not isinstance(item, dict) or item.keys() != _LEFT_OUT:
            raise InvalidInput(Problem(at, str(item)[:80], f"must be an object with {', '.join(sorted(_LEFT_OUT))}"))
        path = _text(item["path"], at=f"{at}.path")[:1024]
        found.append(
            {"path": path, "files": whole(item, "files", at=at) or 0, "size": whole(item, "size", at=at) or 0,
             "is_whole": item["is_whole"] is not False}
        )  # fmt: skip
    return found


def digests(sent: Any) -> list[str]:
    return [_digest(item, at=f"digests.{index}") for index, item in enumerate(_listed("digests", sent))]


def digest(sent: Mapping[str, Any]) -> str:
    """Return the digest of the whole, "" where none was given. Raises InvalidInput."""
    return "" if sent.get("digest") is None else _digest(sent["digest"], at="")


def whole(sent: Mapping[str, Any], name: str, *, at: str = "") -> int | None:
    value = sent.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SIZE:
        raise InvalidInput(Problem(f"{at}.{name}".lstrip("."), value, "must be a whole number, 0 or more"))
    return value


def only(sent: Any, *names: str) -> Mapping[str, Any]:
    """Return the body as an object with no other fields than these: a misspelt one must not be ignored.

    Raises InvalidInput.
    """
    if not isinstance(sent, dict):
        raise InvalidInput(Problem("body", type(sent).__name__, "must be a JSON object"))
    for name in sent:
        if name not in names:
            raise InvalidInput(Problem(name[:80], None, f"is not a field here; known are {', '.join(names)}"))
    return sent


def _entry(item: Any, *, at: str) -> Entry:
    if not isinstance(item, dict) or not item.keys() <= _KEYS:
        raise InvalidInput(Problem(at, str(item)[:80], f"must be an object with {', '.join(sorted(_KEYS))}"))
    path, kind = _text(item.get("path"), at=f"{at}.path"), item.get("kind")
    if kind == "link":
        return Entry(path, LINK, target=_text(item.get("target"), at=f"{at}.target"))
    if kind != "file":
        raise InvalidInput(Problem(f"{at}.kind", kind, f"must be file or link ({path}); omit everything else"))
    size = whole(item, "size", at=at)
    if size is None:
        raise InvalidInput(Problem(f"{at}.size", None, f"is missing ({path}); give the file's bytes"))
    return Entry(path, EXECUTABLE if item.get("executable") is True else FILE, size, _digest(item.get("digest"), at=at))


def _twice(found: list[Entry]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, entry in enumerate(found):
        if entry.path in seen:
            yield Problem(f"set.{index}.path", entry.path, "is named twice; name each path once")
        seen.add(entry.path)


def _listed(name: str, sent: Any) -> list[Any]:
    if not isinstance(sent, list) or len(sent) > MAX_ENTRIES:
        value = len(sent) if isinstance(sent, list) else str(sent)[:80]
        raise InvalidInput(Problem(name, value, f"must be a list of at most {MAX_ENTRIES:,} items"))
    return sent


def _text(item: Any, *, at: str) -> str:
    if not isinstance(item, str):
        raise InvalidInput(Problem(at, str(item)[:80], "must be text"))
    return item


def _digest(item: Any, *, at: str) -> str:
    if not isinstance(item, str) or not _DIGEST.fullmatch(item):
        raise InvalidInput(
            Problem(f"{at}.digest".lstrip("."), str(item)[:80], "must be a sha256 in 64 lower-case hex digits")
        )
    return item
