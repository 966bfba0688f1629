"""Packs a folder for the server: the same files always give the same bytes, so nothing is uploaded twice."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.errors import WorkspaceError
from muster.ignore import Rule, inherited_rules, is_ignored, rules_of_folder

LIMIT_BYTES = 256 * 2**20  # unpacked; code is small, and data belongs on the cluster's storage
LARGEST_SHOWN = 3


@dataclass(frozen=True)
class Entry:
    path: str  # relative to the folder, with forward slashes
    source: Path
    kind: str  # "file", "folder" or "link"
    size_bytes: int = 0
    is_executable: bool = False
    target: str = ""


@dataclass(frozen=True)
class Pack:
    content: bytes
    digest: str
    files: int
    unpacked_bytes: int


def pack(directory: str | os.PathLike[str], *, limit_bytes: int = LIMIT_BYTES) -> Pack:
    """A gzipped tar of the folder without what its ignore files name.

    Raises WorkspaceError for a folder that is not there, too large, unreadable, or that links out of itself.
    """
    root = Path(directory)
    if not root.is_dir():
        raise WorkspaceError(f"no folder {root}: choose one with --dir, or submit with --no-workspace")
    try:
        entries = sorted(_entries(root), key=lambda entry: entry.path)
        _check_size(entries, root=root, limit_bytes=limit_bytes)
        content = _packed(entries)
    except OSError as error:
        message = f"can not read {error.filename} ({error.strerror}): fix it, or list it in .musterignore"
        raise WorkspaceError(message) from error
    files = [entry for entry in entries if entry.kind == "file"]
    return Pack(content, hashlib.sha256(content).hexdigest(), len(files), sum(file.size_bytes for file in files))


def _entries(root: Path) -> Iterator[Entry]:
    rules, place = inherited_rules(root)
    yield from _below(root, root=root, rules=rules, place=place)


def _below(folder: Path, *, root: Path, rules: list[Rule], place: str) -> Iterator[Entry]:
    """Everything kept below the folder; `place` is where it lies for the rules."""
    rules = rules + rules_of_folder(folder, base=place)
    for item in os.scandir(folder):
        is_folder = item.is_dir(follow_symlinks=False)
        if is_ignored(place + item.name, is_folder=is_folder, rules=rules):
            continue
        path = folder / item.name
        yield from _entry(path, root=root)
        if is_folder:
            yield from _below(path, root=root, rules=rules, place=f"{place}{item.name}/")


def _entry(path: Path, *, root: Path) -> Iterator[Entry]:
    """The entry of a path; none for what is neither file, folder nor link: a socket or pipe has no content."""
    seen, name = path.lstat(), path.relative_to(root).as_posix()
    if stat.S_ISLNK(seen.st_mode):
        yield Entry(name, path, "link", target=_target(path, root=root))
    elif stat.S_ISDIR(seen.st_mode):
        yield Entry(name, path, "folder")
    elif stat.S_ISREG(seen.st_mode):
        yield Entry(name, path, "file", seen.st_size, bool(seen.st_mode & stat.S_IXUSR))


def _target(path: Path, *, root: Path) -> str:
    """Where the link points, as it will be true on the server. Raises WorkspaceError when that is outside."""
    target, real_root = os.readlink(path), os.path.realpath(root)
    real = os.path.realpath(path)
    if not _is_inside(real, folder=real_root):
        name = path.relative_to(root).as_posix()
        message = f"the link {name} leaves the folder (it points to {target})"
        raise WorkspaceError(f"{message}: copy what it points to, or list it in .musterignore")
    place = path.relative_to(root).parent
    if not os.path.isabs(target) and _never_leaves(target, depth=len(place.parts)):
        return target
    # It leads out and comes back by this machine's folder names; only the way within the tree exists on the server.
    return os.path.relpath(real, os.path.join(real_root, place))


def _never_leaves(target: str, *, depth: int) -> bool:
    """Whether no step of a relative way goes above the folder, begun `depth` folders below it."""
    for step in target.split("/"):
        depth += -1 if step == ".." else 0 if step in ("", ".") else 1
        if depth < 0:
            return False
    return True


def _is_inside(path: str, *, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _check_size(entries: list[Entry], *, root: Path, limit_bytes: int) -> None:
    total = sum(entry.size_bytes for entry in entries)
    if total <= limit_bytes:
        return
    largest = sorted(entries, key=lambda entry: (-entry.size_bytes, entry.path))[:LARGEST_SHOWN]
    named = ", ".join(f"{entry.path} ({_mebibytes(entry.size_bytes)})" for entry in largest)
    message = f"{root} holds {_mebibytes(total)}, at most {_mebibytes(limit_bytes)} can be sent; largest: {named}"
    raise WorkspaceError(f"{message}: list what the job does not need in .musterignore")


def _packed(entries: list[Entry]) -> bytes:
    buffer = io.BytesIO()
    # No name and no time in the gzip header either: they would change the digest.
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            _add(tar, entry=entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, *, entry: Entry) -> None:
    """Owner, time and the finer permissions stay out: they differ between machines and checkouts."""
    header = tarfile.TarInfo(entry.path)
    if entry.kind == "file":
        content = entry.source.read_bytes()
        header.size, header.mode = len(content), 0o755 if entry.is_executable else 0o644
        tar.addfile(header, io.BytesIO(content))
        return
    header.mode = 0o755 if entry.kind == "folder" else 0o777
    header.type = tarfile.DIRTYPE if entry.kind == "folder" else tarfile.SYMTYPE
    header.linkname = entry.target
    tar.addfile(header)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"
