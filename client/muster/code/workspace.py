"""What a folder contains for a job: files and links, without ignored ones. No file is read here."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from muster.code.ignore import Rule, inherited_rules, is_ignored, rules_of_folder
from muster.errors import WorkspaceError

LARGEST_SHOWN = 3
MAX_PATH_BYTES, MAX_PART_BYTES = 1024, 255
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
KINDS = {stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe", stat.S_IFBLK: "device", stat.S_IFCHR: "device"}


class Stat(NamedTuple):
    """What changes when a file does. The change time too: a modification time can be set back."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, seen: os.stat_result) -> Stat:
        return cls(seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)


class File(NamedTuple):
    path: str  # relative to the folder, with forward slashes
    source: str
    seen: Stat
    is_executable: bool


class Link(NamedTuple):
    path: str
    target: str  # relative, and within the folder


class Tree(NamedTuple):
    root: str
    files: tuple[File, ...]
    links: tuple[Link, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.seen.size for file in self.files)

    def largest(self) -> str:
        """Name the largest files, the first to check when the folder is too large."""
        found = sorted(self.files, key=lambda file: (-file.seen.size, file.path))[:LARGEST_SHOWN]
        return ", ".join(f"{file.path} ({file.seen.size / 2**20:.1f} MiB)" for file in found)


def walk(directory: str | os.PathLike[str]) -> Tree:
    """Scan a folder. Raises WorkspaceError if it is missing or unreadable, or contains what cannot be sent, by name."""
    root = Path(directory)
    if not root.is_dir():
        raise WorkspaceError(f"no folder {root}: choose one with --dir, or submit with --no-workspace")
    rules, place = inherited_rules(root)
    top = os.path.realpath(root)
    try:
        found = sorted(_below(top, "", rules=rules, place=place, root=top), key=lambda item: item.path)
    except OSError as error:
        raise unreadable(error) from error
    files = tuple(item for item in found if isinstance(item, File))
    return Tree(top, files, tuple(item for item in found if isinstance(item, Link)))


def unreadable(error: OSError) -> WorkspaceError:
    return WorkspaceError(f"cannot read {error.filename} ({error.strerror}): fix it, or list it in .musterignore")


def _below(folder: str, prefix: str, *, rules: list[Rule], place: str, root: str) -> Iterator[File | Link]:
    """Yield everything kept below the folder; `prefix` is its path from the root, `place` its path for the rules."""
    rules = rules + rules_of_folder(Path(folder), base=place)
    with os.scandir(folder) as items:
        kept = [item for item in items if not _is_left_out(item, rules=rules, place=place)]
    for item in kept:
        path = prefix + item.name
        if item.is_dir(follow_symlinks=False):
            inner = f"{place}{item.name}/"
            yield from _below(item.path, f"{path}/", rules=rules, place=inner, root=root)
        else:
            _check_name(path)
            yield _found(item, path, root=root)


def _is_left_out(item: os.DirEntry[str], *, rules: list[Rule], place: str) -> bool:
    return is_ignored(place + item.name, is_folder=item.is_dir(follow_symlinks=False), rules=rules)


def _found(item: os.DirEntry[str], path: str, *, root: str) -> File | Link:
    if item.is_symlink():
        return Link(path, _target(item.path, path, root=root))
    seen = item.stat(follow_symlinks=False)
    if not stat.S_ISREG(seen.st_mode):
        kind = KINDS.get(stat.S_IFMT(seen.st_mode), "special file")
        raise WorkspaceError(
            f"{path} is a {kind}, which cannot be sent to a job: move it away, or list it in .musterignore"
        )
    return File(path, item.path, Stat.of(seen), bool(seen.st_mode & stat.S_IXUSR))


def _check_name(path: str) -> None:
    shown, way_out = ascii(path)[:200], "rename it, or list it in .musterignore"
    try:
        parts = [part.encode() for part in path.split("/")]
    except UnicodeEncodeError as error:
        raise WorkspaceError(f"the name {shown} is not UTF-8: {way_out}") from error
    if found := CONTROL.search(path):
        raise WorkspaceError(f"the name {shown} contains the control character U+{ord(found[0]):04X}: {way_out}")
    if max(map(len, parts)) > MAX_PART_BYTES or sum(map(len, parts)) + len(parts) - 1 > MAX_PATH_BYTES:
        raise WorkspaceError(f"the path {shown} is longer than {MAX_PATH_BYTES} bytes: {way_out}")


def _target(source: str, path: str, *, root: str) -> str:
    """Return the link's target as it will work on the server. Raises WorkspaceError when that is outside."""
    target, real = os.readlink(source), os.path.realpath(source)
    if os.path.isabs(target):
        message = f"the link {path} is absolute (it points to {target})"
        raise WorkspaceError(f"{message}: make it relative (ln -srf), or list it in .musterignore")
    if os.path.commonpath([real, root]) != root:
        message = f"the link {path} leaves the folder (it points to {target})"
        raise WorkspaceError(f"{message}: copy what it points to, or list it in .musterignore")
    _check_name(target)
    if _is_straight(target, depth=path.count("/")):
        return target
    # It leads out and back in by this machine's folder names; only the path within the tree exists on the server.
    return os.path.relpath(real, os.path.dirname(source))


def _is_straight(target: str, *, depth: int) -> bool:
    """Return whether the path goes first up, never above the folder, and then only down.

    It starts `depth` folders below the folder.
    """
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((at for at, step in enumerate(steps) if step != ".."), len(steps))
    return ups <= depth and ".." not in steps[ups:]
