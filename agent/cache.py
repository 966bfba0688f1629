"""Files by their digests, shared by the replicas of one team on one machine, so that each comes over the wire once.

Any number of agents use it at once: files appear by a rename, whole and checked, and are checked again when they are taken,
since a job could have written to them. One lock makes those who want the same wait for who fetches it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from typing import IO, Callable, Iterable, Iterator, List, Tuple

PIECE_BYTES = 1 << 18
WAIT_SECONDS = 0.05
TRIM_TO = 0.8  # of the limit, so that not every fetch has to
STALE_SECONDS = 3600  # an unfinished file of an agent that was killed; and how exactly a last use is known


class Cache:
    """`limit_bytes` holds after every fetch. Raises OSError when the folder can not be used."""

    def __init__(self, path: str, *, limit_bytes: int) -> None:
        self._path, self._limit = path, limit_bytes
        os.makedirs(path, mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def lock(self, *, is_cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Yields False when it was cancelled before the lock was free."""
        with open(os.path.join(self._path, "lock"), "ab") as file:
            while not is_cancelled():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(WAIT_SECONDS)
                    continue
                yield True
                return
            yield False

    def absent(self, digests: Iterable[str]) -> List[str]:
        return [digest for digest in dict.fromkeys(digests) if not os.path.exists(self._place(digest))]

    def add(self, digest: str, pieces: Iterable[bytes]) -> None:
        """`pieces` raise when they are not what the digest says; then nothing is kept."""
        place = self._place(digest)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=self._path, prefix="part-")
        try:
            with os.fdopen(handle, "wb") as file:
                for piece in pieces:
                    file.write(piece)
            os.replace(unfinished, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    def copy(self, digest: str, into: IO[bytes]) -> bool:
        """False when it is not here, or not what it was: then it is gone afterwards, and `into` of no use."""
        place = self._place(digest)
        try:
            with open(place, "rb") as file:
                is_right = _copied(file, into) == digest
                _mark_used(file)
        except FileNotFoundError:
            return False
        if not is_right:
            with contextlib.suppress(OSError):
                os.unlink(place)
        return is_right

    def trim(self) -> None:
        """Under the lock. Takes away what was not used for longest, until there is room again."""
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
        """(last use, bytes, path) of each; unfinished ones of the dead are removed on the way."""
        for item in os.scandir(self._path):
            if item.is_dir(follow_symlinks=False):
                for file in os.scandir(item.path):
                    with contextlib.suppress(FileNotFoundError):
                        seen = file.stat(follow_symlinks=False)
                        yield seen.st_mtime, seen.st_size, file.path
            elif (
                item.name.startswith("part-")
                and item.stat(follow_symlinks=False).st_mtime < time.time() - STALE_SECONDS
            ):
                with contextlib.suppress(OSError):
                    os.unlink(item.path)


def _copied(file: IO[bytes], into: IO[bytes]) -> str:
    found = hashlib.sha256()
    while True:
        piece = file.read(PIECE_BYTES)
        if not piece:
            return found.hexdigest()
        found.update(piece)
        into.write(piece)


def _mark_used(file: IO[bytes]) -> None:
    if os.fstat(file.fileno()).st_mtime < time.time() - STALE_SECONDS:
        with contextlib.suppress(OSError):
            os.utime(file.fileno())
