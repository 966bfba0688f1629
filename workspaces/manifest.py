"""What a workspace contains, as one canonical text: its sha256 identifies the workspace. Pure.

One line per entry, sorted by path; no path or target contains a tab or a line end, so the lines need no quoting:

    muster workspace 1
    f <TAB> size <TAB> sha256 <TAB> path      a file (x: an executable one)
    l <TAB> target <TAB> path                 a symbolic link
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from common.errors import MOST_PROBLEMS, InvalidInput, Problem

from .paths import path_problem, target_problem

HEADER = "muster workspace 1"
MAX_ENTRIES = 100_000
MAX_TEXT_BYTES = 32 << 20  # 300 per entry at the maximum number of entries
FILE, EXECUTABLE, LINK = "f", "x", "l"


class Entry(NamedTuple):
    path: str
    kind: str  # FILE, EXECUTABLE or LINK
    size: int = 0
    digest: str = ""  # sha256 of the content, in hex
    target: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind != LINK

    def line(self) -> str:
        head = f"{LINK}\t{self.target}" if self.kind == LINK else f"{self.kind}\t{self.size}\t{self.digest}"
        return f"{head}\t{self.path}\n"


def text_of(entries: Iterable[Entry]) -> str:
    """Return the text of `entries`, which must be sorted by path."""
    return f"{HEADER}\n" + "".join(entry.line() for entry in entries)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read(text: str) -> Iterator[Entry]:
    """Yield the entries of a text made by `text_of`. Raises ValueError for any other."""
    if not text.startswith(f"{HEADER}\n") or not text.endswith("\n"):
        raise ValueError("is not a manifest that this release can read")
    at = len(HEADER) + 1
    while at < len(text):  # one after another: a reader of a few entries builds no list of all
        end = text.index("\n", at)
        fields = text[at:end].split("\t")
        at = end + 1
        if fields[0] == LINK:
            _, target, path = fields
            yield Entry(path, LINK, target=target)
        else:
            kind, size, digest, path = fields
            yield Entry(path, kind, int(size), digest)


def changed(base: Iterable[Entry], *, put: Iterable[Entry], remove: Iterable[str]) -> list[Entry]:
    """Return the base with entries put into it (replacing those at their path) and paths removed; sorted.

    Raises InvalidInput.
    """
    tree = {entry.path: entry for entry in base}
    unknown = [path for path in remove if tree.pop(path, None) is None]
    if unknown:
        raise InvalidInput(Problem("remove", unknown[0], "is not in the base workspace; send the whole list instead"))
    tree.update((entry.path, entry) for entry in put)
    return [tree[path] for path in sorted(tree)]


def check(entries: list[Entry], *, limit_bytes: int) -> None:
    """Check what no single entry shows: their number, their total size, and entries below one that is no folder.

    Raises InvalidInput.
    """
    if len(entries) > MAX_ENTRIES:
        raise InvalidInput(
            Problem("set", len(entries), f"is more than the {MAX_ENTRIES:,} files that a workspace holds; {IGNORE}")
        )
    total = size_of(entries)
    if total > limit_bytes:
        raise InvalidInput(too_large(total, limit_bytes=limit_bytes))
    size = len(HEADER) + 1 + sum(len(entry.line().encode()) for entry in entries)
    if size > MAX_TEXT_BYTES:
        message = f"is a list of {size:,} bytes in all, of at most {MAX_TEXT_BYTES:,}; shorten paths and targets of links, or {IGNORE}"
        raise InvalidInput(Problem("set", len(entries), message))
    problems = [*_below_no_folder(entries)]
    if problems:
        raise InvalidInput(*problems[:MOST_PROBLEMS])


def size_of(entries: Iterable[Entry]) -> int:
    return sum(entry.size for entry in entries)


def too_large(total: int, *, limit_bytes: int) -> Problem:
    return Problem(
        "size_bytes", total, f"the workspace has {total:,} bytes, of {limit_bytes:,} that your team may send; {IGNORE}"
    )


IGNORE = "list what the job does not need in .musterignore"


def entry_problems(entry: Entry, *, at: str) -> Iterator[Problem]:
    """Yield what is wrong with one entry, whoever sent it."""
    if message := path_problem(entry.path):
        yield Problem(f"{at}.path", entry.path, message)
    elif entry.kind == LINK and (message := target_problem(entry.target, depth=entry.path.count("/"))):
        yield Problem(f"{at}.target", entry.target, f"{message} (the link is {entry.path})")


def _below_no_folder(entries: list[Entry]) -> Iterator[Problem]:
    """Yield a problem for each entry below a file or link.

    Sorted by path parts, entries below another follow it at once, so only that one is remembered.
    """
    above: Entry | None = None
    for entry in sorted(entries, key=lambda one: one.path.replace("/", "\0")):
        if above is not None and entry.path.startswith(f"{above.path}/"):
            what = "link" if above.kind == LINK else "file"
            yield Problem("set", entry.path, f"lies below {above.path}, which is a {what}; remove one of the two")
        else:
            above = entry
