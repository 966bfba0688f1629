"""Parse the list of a job's files, trusting nothing in it. docs/wire.md, section 4.

The server enforces the same rules; they are repeated here because it is the agent that would write to a path outside.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple

HEADER = "muster workspace 1"
FILE, EXECUTABLE, LINK = "f", "x", "l"
DIGEST = re.compile("[0-9a-f]{64}")


class Unsafe(Exception):
    """An entry that would reach outside of the folder, or a list that is not one."""


class Entry(NamedTuple):
    path: str
    kind: str
    size: int = 0
    digest: str = ""
    target: str = ""


def read(text: str) -> List[Entry]:
    lines = text.split("\n")
    if lines[0] != HEADER or lines[-1]:
        raise Unsafe("this agent cannot read the list of files")
    try:
        entries = [_entry(line.split("\t")) for line in lines[1:-1]]
    except (ValueError, IndexError) as error:
        raise Unsafe(f"a line of the list cannot be read: {error}") from error
    if len({entry.path for entry in entries}) != len(entries):
        raise Unsafe("a path appears twice")
    return entries


def _entry(fields: List[str]) -> Entry:
    if fields[0] == LINK:
        _, target, path = fields
        entry = Entry(path, LINK, target=target)
        _check_target(target, path=path)
    else:
        kind, size, digest, path = fields
        entry = Entry(path, kind, int(size), digest)
        if kind not in (FILE, EXECUTABLE) or not DIGEST.fullmatch(digest) or entry.size < 0:
            raise Unsafe(f"{path} is not a kind of file that this agent knows")
    _check_path(path)
    return entry


def _check_path(path: str) -> None:
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise Unsafe(f"{path!r} is not a plain path within the folder")


def _check_target(target: str, *, path: str) -> None:
    """Check a link's target: first up, never above the folder, then only down, so that no chain of links leads out."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((at for at, step in enumerate(steps) if step != ".."), len(steps))
    if not target or target.startswith("/") or "\0" in target or ups > path.count("/") or ".." in steps[ups:]:
        raise Unsafe(f"the link {path} leads outside of the workspace (to {target!r})")
