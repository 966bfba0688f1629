"""Files by their digests, shared by one team's replicas on one machine, so that each is downloaded once.

Any number of agents use it at once: files appear by a rename, whole and checked, and are checked again when they are
taken, since a job could have written to them, or put anything else in their place. One lock makes agents that need the
same files wait for the one that fetches them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from typing import IO, Callable, Iterable, Iterator, List, Tuple

from .. import faultpoints
from ..state import plain

PIECE_BYTES = 1 << 18
WAIT_SECONDS = 0.05
LOCK_SECONDS = 120.0  # after that each fetches for itself: a job may hold the lock forever
TRIM_TO = 0.8  # of the limit, so that not every fetch has to trim
STALE_SECONDS = 3600  # age of a killed agent's unfinished file; also the precision of a file's last use


class Unusable(Exception):
    """Something else is where the cache needs a file or a folder, or its lock is not released."""


class Cache:
    """The shared files; `limit_bytes` holds after every fetch. Raises OSError when the folder cannot be used."""

    def __init__(self, path: str, *, limit_bytes: int) -> None:
        self._path, self._limit = path, limit_bytes
        os.makedirs(path, mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def lock(self, *, is_cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Hold the lock; yields False if cancelled before the lock was free. Raises Unusable."""
        with _opened(os.path.join(self._path, "lock"), "ab") as file:
            until = time.monotonic() + LOCK_SECONDS
            while not is_cancelled():
                if time.monotonic() > until:
                    raise Unusable(f"another process held its lock for {LOCK_SECONDS:g} s")
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(WAIT_SECONDS)
                    continue
                yield True
                return
            yield False

    def absent(self, digests: Iterable[str]) -> List[str]:
        return [digest for digest in dict.fromkeys(digests) if not _is_file(self._place(digest))]

    def add(self, digest: str, pieces: Iterable[bytes]) -> None:
        """Add a file; if `pieces` raises, because they do not match the digest, nothing is kept. Raises Unusable."""
        place = self._place(digest)
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.dirname(place), mode=0o700)
        handle, unfinished = tempfile.mkstemp(dir=self._path, prefix="part-")
        try:
            with os.fdopen(handle, "wb") as file:
                for piece in pieces:
                    file.write(piece)
            with faultpoints.around("agent.cache"):
                try:
                    os.replace(unfinished, place)
                except OSError as error:  # a folder has that name, or the parent is no folder
                    raise Unusable(str(error)) from error
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    def copy(self, digest: str, into: IO[bytes], *, size: int) -> bool:
        """Copy a file; False when it is missing or damaged: then it is removed, and `into` is useless."""
        place = self._place(digest)
        try:
            file = _opened(place, "rb")
        except Unusable:
            return False
        with file:
            is_right = os.fstat(file.fileno()).st_size == size and _copied(file, into, most=size) == digest
            _mark_used(file)
        if not is_right:
            with contextlib.suppress(OSError):
                os.unlink(place)
        return is_right

    def trim(self) -> None:
        """Remove the least recently used files until there is room again; the caller holds the lock."""
        found = sorted(self._files())
        total = sum(size for _, size, _ in found)
        if total <= self._limit:
            return
        for _, size, path in found:
            if total <= self._limit * TRIM_TO:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size

    def _place(self, digest: str) -> str:
        return os.path.join(self._path, digest[:2], digest)

    def _files(self) -> Iterator[Tuple[float, int, str]]:
        """Yield (last use, bytes, path) of each file; unfinished ones of dead agents are removed on the way."""
        for item in os.scandir(self._path):
            if item.is_dir(follow_symlinks=False):
                for file in _entries(item.path):
                    with contextlib.suppress(OSError):
                        seen = file.stat(follow_symlinks=False)
                        yield seen.st_mtime, seen.st_size, file.path
            elif (
                item.name.startswith("part-")
                and item.stat(follow_symlinks=False).st_mtime < time.time() - STALE_SECONDS
            ):
                with contextlib.suppress(OSError):
                    os.unlink(item.path)


def _opened(path: str, mode: str) -> IO[bytes]:
    """Open a plain file; raises Unusable for anything else, or a link."""
    try:
        return open(path, mode, opener=lambda path, flags: plain(path, flags | os.O_NOFOLLOW))
    except OSError as error:
        raise Unusable(str(error)) from error


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _entries(folder: str) -> List[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _copied(file: IO[bytes], into: IO[bytes], *, most: int) -> str:
    """Return the digest of what was copied; a file may grow meanwhile."""
    found, left = hashlib.sha256(), most + 1
    while left > 0:
        piece = file.read(min(PIECE_BYTES, left))
        if not piece:
            break
        found.update(piece)
        into.write(piece)
        left -= len(piece)
    return found.hexdigest()


def _mark_used(file: IO[bytes]) -> None:
    if os.fstat(file.fileno()).st_mtime < time.time() - STALE_SECONDS:
        with contextlib.suppress(OSError):
            os.utime(file.fileno())
