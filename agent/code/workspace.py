"""Put the job's code into code/: the list of its files, the files that this machine lacks, then the tree itself."""

from __future__ import annotations

import os
import re
import shutil
import stat
from typing import Callable, Iterable, Iterator, List, Optional, Set

from .. import faultpoints
from ..control import ControlPlane, Listed, Unreachable
from ..state import Spec, StateFolder
from ..wire import manifest, pack
from ..wire.manifest import EXECUTABLE, LINK, Entry, Unsafe
from ..wire.pack import LostFile
from .cache import Cache, Unusable

ROUNDS = 3  # of fetching files that disappeared from the cache
TEAM = re.compile("[0-9A-Za-z-]{1,40}")

__all__ = ["Cancelled", "LostFile", "Unsafe", "fetch", "unpack"]


class Cancelled(Exception):
    """The replica was asked to stop meanwhile."""


def fetch(folder: StateFolder, *, spec: Spec, control: ControlPlane, is_cancelled: Callable[[], bool]) -> None:
    """Put the workspace into code/. Raises Unreachable, Closed, Damaged, LostFile, Unsafe, Cancelled or OSError."""
    with faultpoints.around("agent.list"):
        listed = control.fetch_list()
    shutil.rmtree(folder.code, ignore_errors=True)  # left by an agent that died while fetching
    os.makedirs(folder.code)
    if listed is None:
        return
    entries = manifest.read(listed.text)
    left = [entry for entry in entries if entry.kind != LINK]
    private = folder.file("blobs")
    try:
        for cache in _caches(spec, listed, private=private):
            left = _bring(left, cache=cache, into=folder.code, control=control, is_cancelled=is_cancelled)
            if not left:
                break
    finally:
        shutil.rmtree(private, ignore_errors=True)
    if left:
        raise LostFile(f"this machine does not keep {left[0].path} and {len(left) - 1} more: is its disk full?")
    link(entries, into=folder.code)


def unpack(entries: Iterable[Entry], *, cache: Cache, into: str) -> List[Entry]:
    """Write what is not there yet; return the entries whose files the cache did not have. Links come last."""
    made: Set[str] = {into}
    return [entry for entry in entries if entry.kind != LINK and not _write(entry, cache=cache, root=into, made=made)]


def link(entries: Iterable[Entry], *, into: str) -> None:
    """Create the links after every file, so that nothing is ever written through a link."""
    made: Set[str] = {into}
    for entry in entries:
        if entry.kind == LINK:
            target = _place(entry, root=into, made=made)
            try:
                os.symlink(entry.target, target)
            except FileExistsError as error:
                raise Unsafe(f"{entry.path} is a link and also something else") from error


def _bring(
    left: List[Entry], *, cache: Cache, into: str, control: ControlPlane, is_cancelled: Callable[[], bool]
) -> List[Entry]:
    """Fetch and unpack entries; return what is left.

    Several rounds, because another replica's trimming may remove what was just fetched.
    """
    for _ in range(ROUNDS):
        if left:
            try:
                _fetch_absent([entry.digest for entry in left], cache=cache, control=control, is_cancelled=is_cancelled)
            except Unusable:
                return unpack(left, cache=cache, into=into)
            left = unpack(left, cache=cache, into=into)
    return left


def _fetch_absent(digests: List[str], *, cache: Cache, control: ControlPlane, is_cancelled: Callable[[], bool]) -> None:
    """Fetch missing files; the holder of the lock fetches for all. What came before a failure is kept."""
    if not cache.absent(digests):
        return
    with cache.lock(is_cancelled=is_cancelled) as is_held:
        if not is_held:
            raise Cancelled()
        absent = cache.absent(digests)
        if absent:
            with faultpoints.around("agent.fetch"):
                _fetch_into(cache, absent, control=control, is_cancelled=is_cancelled)
            cache.trim()


def _fetch_into(cache: Cache, digests: List[str], *, control: ControlPlane, is_cancelled: Callable[[], bool]) -> None:
    wanted = set(digests)
    with control.fetch_files(digests) as read:
        try:
            for file in pack.files(read):
                if file.digest not in wanted:
                    raise pack.Broken("a file arrived that was not requested")
                cache.add(file.digest, file.pieces)
                if is_cancelled():
                    raise Cancelled()
        except pack.Broken as error:
            raise Unreachable(str(error)) from error


def _caches(spec: Spec, listed: Listed, *, private: str) -> Iterator[Cache]:
    """Yield the team's cache on this machine, then a private one for this run: the first may be missing, or full."""
    shared = _shared(spec, listed)
    if shared is not None:
        yield shared
    shutil.rmtree(private, ignore_errors=True)
    yield Cache(private, limit_bytes=1 << 62)


def _shared(spec: Spec, listed: Listed) -> Optional[Cache]:
    if not spec.cache or not TEAM.fullmatch(listed.team):
        return None
    try:
        return Cache(os.path.join(spec.cache, listed.team), limit_bytes=spec.cache_bytes)
    except OSError:
        return None


def _write(entry: Entry, *, cache: Cache, root: str, made: Set[str]) -> bool:
    target = _place(entry, root=root, made=made)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        number = os.open(target, flags, 0o755 if entry.kind == EXECUTABLE else 0o644)
    except FileExistsError as error:
        raise Unsafe(f"{entry.path} appears twice") from error
    with os.fdopen(number, "wb") as file:
        is_whole = cache.copy(entry.digest, file, size=entry.size)
    if not is_whole:
        os.unlink(target)
    return is_whole


def _place(entry: Entry, *, root: str, made: Set[str]) -> str:
    """Return the entry's path; its folders are created one by one, and each must be a real one."""
    at = root
    for part in entry.path.split("/")[:-1]:
        at = os.path.join(at, part)
        if at not in made:
            _make(at, entry=entry)
            made.add(at)
    return os.path.join(root, entry.path)


def _make(folder: str, *, entry: Entry) -> None:
    try:
        os.mkdir(folder)
    except FileExistsError as error:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise Unsafe(f"{entry.path} lies below a path that is not a folder") from error
