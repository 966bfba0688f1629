"""Where the servers' files are.

For an ordinary user: inside the data folder. For root: in /var/lib/muster/<id>, because the servers run as a system
user who cannot pass through a data folder of mode 0700, and no mode outside our own folders may be widened for it. The
data folder then records that location.
"""

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.machine import trees

from . import EmbeddedError
from .account import Account, can_run, give
from .files import private_folder, read_json, write_json

ROOT_BASES = (Path("/var/lib/muster"), Path("/var/tmp/muster"), Path("/tmp/muster"))  # noqa: S108 - `_is_ours` looks
SOCKET_PATH_BYTES = 107  # sun_path less its terminating zero, unix(7)
BELONGS_TO = "belongs-to.json"
_SOCKET_NAME = "/.s.PGSQL.5432"
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")  # a path that needs no quoting in a URL


@dataclass(frozen=True)
class Home:
    path: Path
    socket_folder: Path
    shelf: Path  # beside the homes: a copy of the programs, where one is needed


def find_home(data: Path, *, account: Account | None, is_temporary: bool) -> Home:
    """Return the servers' home for this data folder, created if it is new. Raises EmbeddedError."""
    private_folder(data)
    if account is None:
        path = private_folder(data / "servers")
        return Home(path=path, socket_folder=private_folder(_socket_folder(path)), shelf=data)
    path = _known_home(data) or _new_home(data, account=account, is_temporary=is_temporary)
    return Home(path=path, socket_folder=_given_folder(path / "socket", account=account), shelf=path.parent)


def remove_home(data: Path) -> None:
    """Delete what `find_home` created. The data folder itself is the caller's."""
    note = read_json(data / "home.json")
    if note:
        trees.remove(Path(note["path"]))
        (data / "home.json").unlink(missing_ok=True)
    folder = data / "servers"
    if folder.exists():
        shutil.rmtree(_socket_folder(folder), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _known_home(data: Path) -> Path | None:
    note = read_json(data / "home.json")
    if note is None:
        return None
    path = Path(note["path"])
    if not path.is_dir():
        raise EmbeddedError(
            f"The database of {data} was in {path}, which is gone. Restore it, or start over: bin/demo --reset"
        )
    return path


def _new_home(data: Path, *, account: Account, is_temporary: bool) -> Path:
    base = find_base(account)
    sweep(base)
    path = base / secrets.token_hex(4)
    path.mkdir(mode=0o700)
    write_json(path / BELONGS_TO, value={"data": str(data), "is_temporary": is_temporary})
    give(path, account=account)
    write_json(data / "home.json", value={"path": str(path)})
    return path


def find_base(account: Account) -> Path:
    for base in ROOT_BASES:
        if _is_ours(base) and can_run(["test", "-x", base], account=account):
            return base
    raise EmbeddedError(
        f"None of {', '.join(map(str, ROOT_BASES))} can be used for the database. Run this as an ordinary user."
    )


def _is_ours(base: Path) -> bool:
    """Return whether root made it and only root may write it: in /tmp another user may have created it first."""
    try:
        base.mkdir(mode=0o755)
        base.chmod(0o755)  # whatever the umask: a new folder, and ours
    except FileExistsError:
        pass
    except OSError:
        return False
    about = base.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022


def sweep(base: Path) -> None:
    """Delete temporary homes (of tests) whose data folder is gone; a real one is never deleted without a request."""
    for path in homes(base):
        note = read_json(path / BELONGS_TO)
        if note and note["is_temporary"] and not Path(note["data"]).exists():
            trees.remove(path)


def homes(base: Path) -> Iterator[Path]:
    return (path for path in base.iterdir() if (path / BELONGS_TO).exists())


def _given_folder(path: Path, *, account: Account) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    give(path, account=account)
    return path


def _socket_folder(home: Path) -> Path:
    """Return a folder in the home, or elsewhere if its path is too long for a socket or needs quoting in a URL."""
    inside = home / "socket"
    if len(os.fsencode(inside)) + len(_SOCKET_NAME) <= SOCKET_PATH_BYTES and _PLAIN.fullmatch(str(inside)):
        return inside
    about = home.stat()
    return _runtime_folder() / f"muster-{about.st_uid}-{about.st_dev:x}-{about.st_ino:x}"


def _runtime_folder() -> Path:
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    is_usable = (
        folder.is_dir()
        and os.access(folder, os.W_OK)
        and len(os.fsencode(folder)) < 40
        and _PLAIN.fullmatch(str(folder))
    )
    return folder if is_usable else Path("/tmp")  # noqa: S108 - the folder made there is checked to be ours
