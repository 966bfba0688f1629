"""Safe access, possibly as root, to files in folders that belong to the user of local jobs.

A job may have put anything there: a link to a file of ours, a pipe without a writer, a gigabyte. So nothing is
followed, waited for or read beyond a bound, and a write replaces the name and never goes through it.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from itertools import islice
from pathlib import Path

from common.machine.job_user import JobUser

MAX_BYTES = 8 << 20  # a job's environment is the largest thing that is read
STATE_BYTES = 256 << 10  # for an agent's status, which is read twice a second; it needs 4 KB
# What reading JSON written by a job can raise: absent, not text, not JSON, wrong types, too deep, too large.
UNREADABLE = (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(path: Path, *, most: int | None = None) -> str:
    """Read a small text file. Raises FileNotFoundError, or ValueError for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | _SAFELY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):  # before fdopen, which refuses a folder and leaves it open
        os.close(file)
        raise ValueError(f"{path.name} is no file")
    with os.fdopen(file, "rb") as opened:
        limit = MAX_BYTES if most is None else most
        content = opened.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{path.name} is too large")
    return content.decode()


def write(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file atomically: readers in other processes never see half of it. Its owner is that of its folder."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600)
    with os.fdopen(file, "w") as opened:
        opened.write(text)
        os.fchmod(file, mode)
        _give_as(path.parent, file)
    part.replace(path)


def append(path: Path, content: bytes) -> None:
    with os.fdopen(open_to_append(path), "ab") as opened:
        opened.write(content)


def open_to_append(path: Path) -> int:
    """Return a descriptor; of /dev/null if the name belongs to anything but a plain file."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _SAFELY, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        os.close(file)
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    _give_as(path.parent, file)
    os.set_blocking(file, True)
    return file


def is_there(path: Path) -> bool:
    """Whether the name exists, whatever it is or links to.

    pathlib's `exists` fails on a link to a name that is too long.
    """
    return os.path.lexists(path)


def names(folder: Path, most: int = 10_000) -> list[str]:
    """Return the entries of a folder that is not a link; empty if it cannot be read."""
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    except OSError:
        return []
    try:
        with os.scandir(at) as entries:
            return [entry.name for entry in islice(entries, most)]
    finally:
        os.close(at)


def erase(folder: Path) -> None:
    """Delete the files of a folder and of its subfolders, as far as that can be done; no link is followed."""
    with contextlib.suppress(OSError, RecursionError):  # a job may have nested folders without end
        for _, _, _, at in os.fwalk(folder, topdown=False, follow_symlinks=False):
            for name in _files(at):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=at)


def owner(path: Path) -> int:
    return path.stat(follow_symlinks=False).st_uid


def own_note(place: Path, name: str) -> Path:
    """Return the path of Muster's note about a replica.

    It lies beside the replica's folder if that belongs to the job's user, who could change it.
    """
    return place.with_name(f"{place.name}.{name}") if owner(place) != os.geteuid() else place / name


def may_be_of(pid: int, place: Path) -> bool:
    """Whether a process, named in a file that the job may have written, may be the replica's agent. A dead one may."""
    whose = owner(place)
    if whose == os.geteuid():
        return True
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    uids = next((line.split()[1:5] for line in status.splitlines() if line.startswith("Uid:")), [])
    return set(uids) == {str(whose)}


def passage(path: Path) -> None:
    """Make a folder of ours that the user of jobs may pass through, but not list."""
    path.mkdir(parents=True, exist_ok=True)
    if owner(path) == os.geteuid():
        path.chmod(0o711)


def published(file: Path, folder: Path) -> Path:
    """Make a world-readable copy of a file of ours, named by its content."""
    content = file.read_bytes()
    copy = folder / f"{file.stem}-{hashlib.sha256(content).hexdigest()[:16]}{file.suffix}"
    if not copy.exists():
        draft = copy.with_name(f".{copy.name}.{secrets.token_hex(8)}")
        draft.write_bytes(content)
        draft.chmod(0o644)
        draft.replace(copy)
    return copy


def give_folder(path: Path, user: JobUser) -> None:
    """Give a folder to the user of jobs, with its content if it has another owner.

    Such content is from earlier jobs, which ran as root.
    """
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or owner(path) == user.uid:  # the target of a link is for the operator to give
        return
    for folder, _, _, at in os.fwalk(path, follow_symlinks=False):
        for name in _files(at):
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(name, dir_fd=at, follow_symlinks=False)
                # A file with a second link may be one that was never ours to give.
                if stat.S_ISLNK(about.st_mode) or about.st_nlink == 1:
                    os.chown(name, user.uid, user.gid, dir_fd=at, follow_symlinks=False)
        if folder != os.fspath(path):
            os.chown(at, user.uid, user.gid)
    # The top goes last: its owner shows that everything below was given.
    path.chmod(0o700)
    os.chown(path, user.uid, user.gid)


def _files(folder: int) -> list[str]:
    """Return all entries but folders; links to folders count as files."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]


def _give_as(folder: Path, file: int) -> None:
    about = folder.stat(follow_symlinks=False)
    if os.geteuid() == 0 and about.st_uid != os.fstat(file).st_uid:
        os.fchown(file, about.st_uid, about.st_gid)
