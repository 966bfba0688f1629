"""Files that a job wrote into its working folder. Where folders are kept, the next attempt continues with them.

They are recognised by the time at which they last changed, later than that of a marker which is written when the code
is in place. The files of a replica's predecessor are moved and not copied: checkpoints are large, and there is one
place where a job would look for them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..state import Spec, StateFolder

MARKER = "code-in-place"
CARRIED = "files-carried"  # what its predecessors left has been moved here
MOST_FILES = 10_000
MOST_BYTES = 256 << 30
MOST_SEEN = 200_000  # files and folders that are looked at
MOST_DEPTH = 100  # folders within folders: makedirs and rmtree of older Pythons are limited by the stack
MOST_NAMED = 5
IGNORED = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache"})


class Written(NamedTuple):
    path: str  # within the folder
    size: int  # bytes
    changed: int  # ns since the epoch


def mark(folder: StateFolder) -> None:
    """Remember that the code is in place: what changes from now on was written by the job."""
    _touch(folder.file(MARKER))


def _touch(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "w", encoding="ascii"):
        pass


def written(place: str) -> List[Written]:
    """Return what a replica wrote into its working folder, newest first; empty if its code was never in place."""
    code = os.path.join(place, "code")
    try:
        since = os.lstat(os.path.join(place, MARKER)).st_ctime_ns
    except OSError:
        return []
    found = [] if os.path.islink(code) else [one for one in _files(code) if one.changed > since]
    return sorted(found, key=lambda one: (-one.changed, one.path))


def carry(folder: StateFolder, *, spec: Spec) -> Optional[Dict[str, Any]]:
    """Move the predecessor's files into this replica's folder; return what was done, None if there was nothing.

    A predecessor that was killed while it did this has left some of the files where they were: they follow."""
    moved: List[Written] = []
    known: Set[str] = set()  # paths; what a later attempt has replaces what is left of an earlier one
    total = newest = 0
    for attempt, place in _predecessors(folder, spec=spec):
        found = [one for one in written(place) if one.path not in known]
        known.update(one.path for one in found)
        newest = newest or (attempt if found else 0)
        for one in found:
            if len(moved) < MOST_FILES and total + one.size <= MOST_BYTES and _move(one.path, place, folder.code):
                moved.append(one)
                total += one.size
    _touch(folder.file(CARRIED))
    return {**described(moved), "attempt": newest, "left": len(known) - len(moved)} if known else None


def described(files: List[Written]) -> Dict[str, Any]:
    return {
        "files": len(files),
        "bytes": sum(one.size for one in files),
        "names": [one.path for one in files[:MOST_NAMED]],
    }


def _predecessors(folder: StateFolder, *, spec: Spec) -> Iterator[Tuple[int, str]]:
    """Yield attempt and folder of replicas at this place whose code was in place, the last one first, back to one that
    has taken over all of its predecessor's files."""
    run = os.path.dirname(os.path.dirname(folder.path))
    name = f"{spec.role}-{spec.index}"
    for attempt in range(spec.attempt, 0, -1):
        of_attempt = os.path.join(run, str(attempt))
        newest = spec.incarnation - 1 if attempt == spec.attempt else _newest(of_attempt, name)
        for incarnation in range(newest, -1, -1):
            place = os.path.join(of_attempt, f"{name}.{incarnation}" if incarnation else name)
            if os.path.lexists(os.path.join(place, MARKER)):
                yield attempt, place
            if os.path.lexists(os.path.join(place, CARRIED)):
                return


def _newest(of_attempt: str, name: str) -> int:
    """Return the last incarnation at a place. Tried one by one: a job's user may not list the folder above its own."""
    number = 0
    while os.path.lexists(os.path.join(of_attempt, f"{name}.{number + 1}")):
        number += 1
    return number


def _files(top: str) -> Iterator[Written]:
    seen, folders = 0, [""]
    while folders:
        folder = folders.pop()
        try:
            names = os.listdir(os.path.join(top, folder))
        except OSError:  # it may not be read, is gone, or its path is too long
            continue
        for name in names:
            seen += 1
            if seen > MOST_SEEN:
                return
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                about = os.lstat(os.path.join(top, path))
                if stat.S_ISDIR(about.st_mode) and name not in IGNORED and path.count(os.sep) < MOST_DEPTH:
                    folders.append(path)
                elif stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
                    yield Written(path, about.st_size, about.st_ctime_ns)


def _move(path: str, place: str, code: str) -> bool:
    target = os.path.join(code, path)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(os.path.join(place, "code", path), target)
    except OSError:  # a folder is in its place, or it is gone
        return False
    return True
