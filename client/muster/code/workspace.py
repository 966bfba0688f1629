"""What a folder contains for a job: files and links, without ignored ones. No file is read here.

In a git checkout that is what `git ls-files --cached --others --exclude-standard` lists, there and in each submodule
and repository inside, without what .musterignore leaves out. Elsewhere .gitignore and .musterignore decide alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from muster.code import checkout
from muster.code.checkout import Checkout
from muster.code.ignore import (
    Rule,
    deciding,
    default_rules,
    is_ignored,
    place_of,
    rules_above,
    rules_of_folder,
    work_tree,
)
from muster.errors import WorkspaceError

LARGEST_SHOWN = 3
MOST_COUNTED = 20_000  # files of ignored folders: a data set may have millions
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


class LeftOut(NamedTuple):
    """An ignored file or folder, whose path ends in a slash. Of large ones `files` and `size` are lower bounds."""

    path: str
    files: int
    size: int
    is_whole: bool = True


class Tree(NamedTuple):
    root: str
    files: tuple[File, ...]
    links: tuple[Link, ...]
    left_out: tuple[LeftOut, ...] = ()
    missing: tuple[str, ...] = ()  # submodules that are not checked out

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
    top = os.path.realpath(root)
    scan = _Scan(top)
    try:
        found = sorted(scan.below(top, "", at=_start(Path(top))), key=lambda item: item.path)
    except OSError as error:
        raise unreadable(error) from error
    files = tuple(item for item in found if isinstance(item, File))
    links = tuple(item for item in found if isinstance(item, Link))
    return Tree(top, files, links, scan.left_out, tuple(scan.missing))


def unreadable(error: OSError) -> WorkspaceError:
    return WorkspaceError(f"cannot read {error.filename} ({error.strerror}): fix it, or list it in .musterignore")


class _At(NamedTuple):
    """Where a scan is: the folder's path for the rules, those from above, and the work tree around it.

    `is_ignored`: git ignores the folder, and only what it tracks in there is sent.
    """

    place: str
    rules: list[Rule]
    tree: Checkout | None
    is_ignored: bool = False


def _start(root: Path) -> _At:
    """Return where the scan of a folder begins; one inside a work tree is also subject to the rules above it."""
    top = work_tree(root)
    if top is None:
        return _At("", default_rules(), None)
    tree, place = checkout.read(top, base=""), place_of(root, top=top)
    rules = default_rules() + list(tree.rules if tree else ()) + rules_above(root, top=top)
    # Whoever submits from a folder that git ignores wants it: there git lists nothing.
    if tree and place and not tree.contains_some_of(place[:-1]) and _is_within_ignored(place, rules):
        tree = None
    return _At(place, rules, tree)


def _is_within_ignored(place: str, rules: list[Rule]) -> bool:
    parts = place[:-1].split("/")
    return any(is_ignored("/".join(parts[:count]), is_folder=True, rules=rules) for count in range(1, len(parts) + 1))


class _Scan:
    def __init__(self, root: str) -> None:
        self._root = root
        self._left_out: dict[str, LeftOut] = {}
        self._budget = MOST_COUNTED
        self.missing: list[str] = []

    def below(self, folder: str, prefix: str, *, at: _At) -> Iterator[File | Link]:
        """Yield everything kept below the folder; `prefix` is its path from the root."""
        at = at._replace(rules=at.rules + rules_of_folder(Path(folder), base=at.place))
        with os.scandir(folder) as items:
            found = sorted(items, key=lambda item: item.name)
        for item in found:
            path = prefix + item.name
            if item.is_dir(follow_symlinks=False):
                inner = _folder_at(item, at)
                if inner is None:
                    self._leave_out(item, f"{path}/", at=at)
                else:
                    if at.tree is not None and at.tree.is_tracked(at.place + item.name) and not os.listdir(item.path):
                        self.missing.append(path)
                    yield from self.below(item.path, f"{path}/", at=inner)
            elif _is_kept(at.place + item.name, at):
                _check_name(path)
                yield _found(item, path, root=self._root)
            else:
                self._leave_out(item, path, at=at)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The largest first."""
        return tuple(sorted(self._left_out.values(), key=lambda one: (-one.size, one.path)))

    def _leave_out(self, item: os.DirEntry[str], path: str, *, at: _At) -> None:
        """Note what is ignored, without what nobody would miss."""
        if is_ignored(item.name, is_folder=path.endswith("/"), rules=_defaults()):
            return
        files, size, is_whole = self._count(item)
        # Of a folder that is sent in part, all that is not.
        path = path[: len(path.rstrip("/")) - len(item.name)] if at.is_ignored else path
        known = self._left_out.get(path, LeftOut(path, 0, 0))
        if files or not is_whole:
            is_whole = is_whole and known.is_whole
            self._left_out[path] = LeftOut(path, known.files + files, known.size + size, is_whole)

    def _count(self, item: os.DirEntry[str]) -> tuple[int, int, bool]:
        """Return how many files there are, their bytes, and whether these are all."""
        files, size = 0, 0
        try:
            for one in _all_files(item):
                if self._budget <= 0:
                    return files, size, False
                self._budget -= 1
                files, size = files + 1, size + one.stat(follow_symlinks=False).st_size
        except OSError:
            return files, size, False
        return files, size, True


@cache
def _defaults() -> list[Rule]:
    return default_rules()


def _all_files(item: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    if not item.is_dir(follow_symlinks=False):
        yield item
        return
    with os.scandir(item.path) as items:
        for inner in items:
            yield from _all_files(inner)


def _folder_at(item: os.DirEntry[str], at: _At) -> _At | None:
    """Return where the scan of a folder inside goes on; None if it is left out."""
    place, rules = at.place + item.name, at.rules
    rule = deciding(place, is_folder=True, rules=rules)
    own = deciding(place, is_folder=True, rules=[one for one in rules if one.is_own])
    is_listed = at.tree is not None and at.tree.contains_some_of(place)
    if rule is not None and rule.is_own and not rule.is_negated:
        return None
    if own is not None and not own.is_negated and is_listed:
        return None
    is_out = at.is_ignored or (rule is not None and not rule.is_negated)
    if is_out and not is_listed:
        return None
    inner = checkout.read(Path(item.path), base=f"{place}/")
    if inner is not None:
        # Another repository: the rules of this one end here, those of .musterignore go on.
        kept = default_rules() + list(inner.rules) + [one for one in rules if one.is_own]
        return _At(f"{place}/", kept, inner)
    return _At(f"{place}/", rules, at.tree, is_out)


def _is_kept(place: str, at: _At) -> bool:
    """Return whether a file is sent: git's list decides, and .musterignore over it."""
    if at.tree is not None and at.tree.is_tracked(place):
        own = deciding(place, is_folder=False, rules=[one for one in at.rules if one.is_own])
        return own is None or own.is_negated
    if at.is_ignored:
        return False
    rule = deciding(place, is_folder=False, rules=at.rules)
    is_listed = at.tree.is_untracked(place) if at.tree is not None else None
    if is_listed is None or (rule is not None and (rule.is_own or rule in _defaults())):
        return rule is None or rule.is_negated
    return is_listed


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
