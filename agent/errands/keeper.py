"""What the pod of a keeper runs: delete the folders of removed jobs in the one claim that it mounts, and look how full that is.

`agent.pyz --keep FOLDER`, where the claim is mounted. MUSTER_KEEP says what is to be done, as JSON:
{"folders": ["412-k3m9x2"], "seconds": 240}. One line on stdout answers it:
{"keeper": 1, "gone": [runs], "left": {run: why}, "late": [runs], "use": {"total": bytes, "free": bytes, "written_at": seconds}}

Only folders directly in FOLDER whose names are runs are deleted, and no link is followed: what is in them was written by
jobs. What is not deleted in time is `late`, and the next keeper goes on with it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from ..output.mounted import look

ASKED = "MUSTER_KEEP"
RUN = re.compile(r"^[0-9]{1,18}(-[a-z0-9]{1,20})?\Z")
MOST_DEPTH = 100  # beyond that a folder is moved up: each level takes a descriptor, and jobs nest as deep as they like
MOST_WORDS = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Late(Exception):
    """The time is over."""


def main(words: List[str]) -> int:
    try:
        asked = json.loads(os.environ[ASKED])
        folders, seconds = [str(one) for one in asked["folders"]], float(asked["seconds"])
        (place,) = words
    except (KeyError, TypeError, ValueError) as error:
        print(f"the keeper was not told what to do: {error!r}", file=sys.stderr)
        return 2
    gone, left, late = delete(place, folders, end=time.monotonic() + seconds)
    use: Optional[Dict[str, Any]] = None
    try:
        use = look(place)
    except OSError as error:
        print(f"the volume cannot be looked at: {error}", file=sys.stderr)
    print(json.dumps({"keeper": 1, "gone": gone, "left": left, "late": late, "use": use}), flush=True)
    return 0


def delete(place: str, folders: List[str], *, end: float) -> Tuple[List[str], Dict[str, str], List[str]]:
    """Delete these folders of `place`. Return those that are gone, why others are left, and those for which there was no time.

    `end` is of the monotonic clock.
    """
    gone: List[str] = []
    late: List[str] = []
    left: Dict[str, str] = {}
    base = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in folders:
            try:
                _delete(base, name, end)
                gone.append(name)
            except Late:
                late.append(name)
            except (OSError, ValueError) as error:
                left[name] = str(error)[:MOST_WORDS]
    finally:
        os.close(base)
    return gone, left, late


def _delete(base: int, name: str, end: float) -> None:
    if not RUN.match(name):
        raise ValueError("it is not the name of a run")
    try:
        folder = _open(base, name)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ValueError("it is not a folder") from None
        raise
    try:
        while not _is_empty(folder):
            _clear(folder, top=folder, depth=0, end=end)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=base)


def _clear(folder: int, *, top: int, depth: int, end: float) -> None:
    """Delete what is in an open folder. Folders at the greatest depth are moved to the top, where the caller finds them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > end:
                raise Late
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
            elif depth >= MOST_DEPTH:
                os.rename(entry.name, f".deep-{time.monotonic_ns()}", src_dir_fd=folder, dst_dir_fd=top)
            else:
                child = _open(folder, entry.name)
                try:
                    while not _is_empty(child):
                        _clear(child, top=top, depth=depth + 1, end=end)
                finally:
                    os.close(child)
                os.rmdir(entry.name, dir_fd=folder)


def _is_empty(folder: int) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None


def _open(parent: int, name: str) -> int:
    """Open a folder, no link, so that its entries can be deleted: a job may have taken that right from itself."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        finally:
            os.close(handle)
        folder = os.open(name, _FOLDER, dir_fd=parent)
    about = os.fstat(folder)
    if about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) & 0o700 != 0o700:
        os.fchmod(folder, 0o700)
    return folder
