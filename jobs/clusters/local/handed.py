"""Files in folders that belong to the user of local jobs, read and written by Muster, which may be root.

A job may have put anything there: a link to a file of ours, a pipe that nobody writes to, a gigabyte. So nothing is
followed, waited for or read beyond a bound, and what is written takes the place of a name and never goes through it.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from itertools import islice
from pathlib import Path

from common.job_user import JobUser

MAX_BYTES = 8 << 20  # a job's environment is the largest thing that is read
STATE_BYTES = 256 << 10  # of what an agent says of itself, which is read twice a second; it needs 4 KB
# What comes of reading JSON that a job could have written: absent, no text, no JSON, other types, too deep, too large.
UNREADABLE = (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(path: Path, *, most: int | None = None) -> str:
    """Raises FileNotFoundError, or ValueError for whatever is not a small file of text."""
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
    """Whole or not at all: readers of other processes never see half a file. It belongs to whom its folder belongs."""
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
    """A descriptor. Of /dev/null where something else than a plain file has the name."""
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
    """Whatever it is, and whatever it leads to. pathlib's own question fails where a link leads to a name that is too long."""
    return os.path.lexists(path)


def names(folder: Path, most: int = 10_000) -> list[str]:
    """What lies in a folder that is no link; nothing where it cannot be read."""
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    except OSError:
        return []
    try:
        with os.scandir(at) as entries:
            return [entry.name for entry in islice(entries, most)]
    finally:
        os.close(at)


def owner(path: Path) -> int:
    return path.stat(follow_symlinks=False).st_uid


def own_note(place: Path, name: str) -> Path:
    """Where Muster keeps a note about a replica: beside its folder where that belongs to the job's user, who could change it."""
    return place.with_name(f"{place.name}.{name}") if owner(place) != os.geteuid() else place / name


def may_be_of(pid: int, place: Path) -> bool:
    """Whether that process may be a replica's agent, as a file says that its job could have written. Gone ones may."""
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
    """A folder of ours that the user of jobs may pass through, and not list."""
    path.mkdir(parents=True, exist_ok=True)
    if owner(path) == os.geteuid():
        path.chmod(0o711)


def published(file: Path, folder: Path) -> Path:
    """A copy of a file of ours that everybody may read, named by its content."""
    content = file.read_bytes()
    copy = folder / f"{file.stem}-{hashlib.sha256(content).hexdigest()[:16]}{file.suffix}"
    if not copy.exists():
        draft = copy.with_name(f".{copy.name}.{secrets.token_hex(8)}")
        draft.write_bytes(content)
        draft.chmod(0o644)
        draft.replace(copy)
    return copy


def give_folder(path: Path, user: JobUser) -> None:
    """The folder, and where it belongs to somebody else all that is in it: of jobs from before, which ran as root."""
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or owner(path) == user.uid:  # where a link leads is the operator's to give
        return
    for folder, _, _, at in os.fwalk(path, follow_symlinks=False):
        for name in _files(at):
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(name, dir_fd=at, follow_symlinks=False)
                # One with a second name may be a file that was never ours to give.
                if stat.S_ISLNK(about.st_mode) or about.st_nlink == 1:
                    os.chown(name, user.uid, user.gid, dir_fd=at, follow_symlinks=False)
        if folder != os.fspath(path):
            os.chown(at, user.uid, user.gid)
    # The top goes last: it says that all below was given.
    path.chmod(0o700)
    os.chown(path, user.uid, user.gid)


def _files(folder: int) -> list[str]:
    """All but folders; links to folders are files here."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]


def _give_as(folder: Path, file: int) -> None:
    about = folder.stat(follow_symlinks=False)
    if os.geteuid() == 0 and about.st_uid != os.fstat(file).st_uid:
        os.fchown(file, about.st_uid, about.st_gid)
