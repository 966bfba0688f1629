"""Fetches the job's code and unpacks it, trusting nothing in it."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from typing import IO

from . import crash
from .control import ControlPlane
from .state import StateFolder

LIMIT_BYTES = 16 << 30  # unpacked; a small archive may hold a large nothing
LIMIT_FILES = 500_000


class Unsafe(Exception):
    """An entry of the archive that would reach outside of the folder, or that is no file, folder or link."""


def fetch(folder: StateFolder, *, control: ControlPlane) -> None:
    """Leaves the workspace in code/. Raises Unreachable, Closed, Unsafe, OSError or tarfile.TarError."""
    with tempfile.TemporaryFile(dir=folder.path) as archive:
        with crash.around("agent.fetch"):
            has_one = control.fetch_workspace(archive)
        shutil.rmtree(folder.code, ignore_errors=True)  # of an agent that died on its way
        os.makedirs(folder.code)
        if has_one:
            archive.seek(0)
            unpack(archive, folder.code)


def unpack(archive: IO[bytes], into: str) -> None:
    """`into` exists and is empty. Execute bits are kept, owners and other bits are not."""
    root = os.path.realpath(into)
    total = count = 0
    with tarfile.open(fileobj=archive, mode="r:*") as tar:
        for entry in tar:
            total, count = total + entry.size, count + 1
            if total > LIMIT_BYTES or count > LIMIT_FILES:
                raise Unsafe(f"more than {LIMIT_BYTES} bytes or {LIMIT_FILES} files")
            _unpack_one(tar, entry, root=root)


def _unpack_one(tar: tarfile.TarFile, entry: tarfile.TarInfo, *, root: str) -> None:
    target = _inside(root, entry.name, entry=entry)
    if target == root:
        return
    _make_parent(target, root=root, entry=entry)
    if entry.isdir():
        _clear(target, keeps_folder=True)
        os.makedirs(target, exist_ok=True)
    elif entry.isreg():
        _clear(target)
        _write(tar, entry, target=target)
    elif entry.issym():
        # A link is relative to the folder it lies in.
        _inside(root, os.path.join(os.path.dirname(entry.name), entry.linkname), entry=entry, text=entry.linkname)
        _clear(target)
        os.symlink(entry.linkname, target)
    elif entry.islnk():
        source = _inside(root, entry.linkname, entry=entry)
        _check_real(source, root=root, entry=entry)
        _clear(target)
        os.link(source, target, follow_symlinks=False)
    else:
        raise Unsafe(f"{entry.name} is a device or a pipe")


def _inside(root: str, name: str, *, entry: tarfile.TarInfo, text: str = "") -> str:
    """The path in `root` that `name` means, by its words alone."""
    if os.path.isabs(name) or os.path.isabs(text) or "\0" in name:
        raise Unsafe(f"{entry.name} has an absolute path")
    path = os.path.normpath(os.path.join(root, name))
    if path != root and not path.startswith(root + os.sep):
        raise Unsafe(f"{entry.name} leads outside of the workspace")
    # A plain entry has no reason for "..", and behind a link it would mean another place than its words say.
    if not text and ".." in name.split("/"):
        raise Unsafe(f"{entry.name} has '..' in its path")
    return path


def _make_parent(target: str, *, root: str, entry: tarfile.TarInfo) -> None:
    parent = os.path.dirname(target)
    _check_real(parent, root=root, entry=entry)
    os.makedirs(parent, exist_ok=True)


def _check_real(path: str, *, root: str, entry: tarfile.TarInfo) -> None:
    """Links unpacked before may stand in the way: chains of harmless ones can still lead outside."""
    real = os.path.realpath(path)
    if real != root and not real.startswith(root + os.sep):
        raise Unsafe(f"{entry.name} leads outside of the workspace")


def _clear(target: str, *, keeps_folder: bool = False) -> None:
    if os.path.islink(target) or os.path.isfile(target):
        os.unlink(target)
    elif os.path.isdir(target) and not keeps_folder:
        shutil.rmtree(target)


def _write(tar: tarfile.TarFile, entry: tarfile.TarInfo, *, target: str) -> None:
    source = tar.extractfile(entry)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(target, flags, 0o755 if entry.mode & 0o111 else 0o644), "wb") as file:
        if source is not None:
            shutil.copyfileobj(source, file)
    os.utime(target, (entry.mtime, entry.mtime))
