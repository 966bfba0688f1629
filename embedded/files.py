"""Our files: folders readable by their owner only, and JSON that is either the old or the new, never half."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import IO, Any

from . import EmbeddedError

LOG_BYTES = 10 * 2**20


def private_folder(path: Path) -> Path:
    """Create a folder of ours with mode 0700. An existing one must be ours already: its mode is set, its owner never.

    Raises EmbeddedError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        owner = about.st_uid
        raise EmbeddedError(
            f"{path} belongs to user {owner}; run this as that user, or set MUSTER_DATA_DIR to another folder."
        )
    if stat.S_IMODE(about.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def write_json(path: Path, *, value: Any, mode: int = 0o600) -> None:
    write_text(path, text=json.dumps(value, indent=1) + "\n", mode=mode)


def write_text(path: Path, *, text: str, mode: int = 0o600) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def read_json(path: Path) -> Any:
    """Return the file's content; None when it is missing or another program left it incomplete."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def read_foreign_json(path: Path, *, most: int = 64 * 2**10) -> Any:
    """Like `read_json`, for a file that a job may have put there.

    Follows no link, waits for no pipe, and reads at most `most` bytes.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            return json.loads(os.read(file, most))
        finally:
            os.close(file)
    except (OSError, ValueError, RecursionError):
        return None


def open_log(path: Path) -> int:
    """Return a descriptor to append to.

    A log that grew too long is first set aside, so each stays below twice the limit.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def bound_log(path: Path, *, most: int = LOG_BYTES) -> bool:
    """Empty a log that a running process appends to, once it grew too long; its newest part is kept beside it.

    The process keeps its descriptor: with O_APPEND it continues at the new end. A line written between the copy and the
    truncation is lost.
    """
    try:
        size = path.stat().st_size
        if size <= most:
            return False
        with path.open("rb") as file, _beside(path) as kept:
            file.seek(max(size - most, 0))
            shutil.copyfileobj(file, kept)
        os.truncate(path, 0)
    except FileNotFoundError:
        return False
    return True


def _beside(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path.with_name(path.name + ".1"), flags, 0o600), "wb")


def last_lines(path: Path, *, count: int = 5) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    except OSError:
        return ""
