"""Where the files of local jobs are.

For an ordinary user: `local` in the data folder. For root: in /var/lib/muster/<id>, because jobs then run as a user who
cannot pass through a data folder of mode 0700, with Muster's secrets in it. `local` in the data folder is then a link
to that location.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.machine import job_user, trees
from common.machine.job_user import BadJobUser, JobUser

from . import EmbeddedError
from .account import Account, server_account
from .agents import living
from .files import private_folder, read_json, write_json
from .home import BELONGS_TO, find_base, homes, sweep

BLOCK_BYTES = 512  # of st_blocks, stat(2)
FREE_BYTES = 256 << 20  # left free on the disk that a copy goes to
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h
_libc = ctypes.CDLL(None, use_errno=True)


def find_local_home(data: Path, *, setting: str, is_temporary: bool) -> JobUser | None:
    """Create `local` of this data folder; return the user its jobs run as; None: the current one.

    Raises EmbeddedError.
    """
    local = data / "local"
    try:
        if job_user.find(setting) is None:
            if not _known_home(local):  # else another user's jobs may still run there
                private_folder(local)
            return None
        return _root_home(data, local, setting=setting, is_temporary=is_temporary)
    except BadJobUser as error:
        raise EmbeddedError(f"{error}.") from error


def remove_local_home(data: Path) -> None:
    local = data / "local"
    if local.is_symlink():
        if _is_ours(target := Path(os.readlink(local))):
            trees.remove(target.parent)
        local.unlink()


def _root_home(data: Path, local: Path, *, setting: str, is_temporary: bool) -> JobUser:
    servers = server_account()
    database = {servers.uid} if servers else set()
    known = _known_home(local)
    base = known.parent if known else find_base(Account("the user of local jobs", 65534, 65534))
    with _alone(base):  # two installations that start at once must not choose the same user
        others = {uid for path in homes(base) if path != known and (uid := _note(path).get("job_user"))}
        kept = _note(known).get("job_user") if known and not setting else None
        user = job_user.find(str(kept) if kept else setting, taken=database if setting or kept else database | others)
        assert user is not None
        if known is None:
            sweep(base)
            known = base / secrets.token_hex(4)
            known.mkdir()
        known.chmod(0o711)
        write_json(known / BELONGS_TO, value={"data": str(data), "is_temporary": is_temporary, "job_user": user.uid})
    if not local.is_symlink():
        try:
            _move(local, known / "local")
        except EmbeddedError:  # nothing was moved
            trees.remove(known)
            raise
    (known / "local").mkdir(exist_ok=True)
    (known / "local").chmod(0o711)
    return user


def _known_home(local: Path) -> Path | None:
    if not local.is_symlink():
        return None
    target = Path(os.readlink(local))
    if not target.parent.is_dir():
        raise EmbeddedError(
            f"Files of local jobs were in {target.parent}, which is gone. Restore it, or start over: bin/demo --reset"
        )
    if not _is_ours(target):
        raise EmbeddedError(
            f"{local} is a link to {target} that Muster did not make. Put a folder in its place (a bind mount may lead "
            "to another disk), or set MUSTER_DATA_DIR to another folder."
        )
    return target.parent


def _is_ours(target: Path) -> bool:
    """Return whether we made the folder that a link leads to, by our note beside it. Nothing else is ever deleted."""
    return target.name == "local" and "job_user" in _note(target.parent)


def _move(local: Path, target: Path) -> None:
    """Move the files while earlier jobs continue: the old path leads to the files at every moment."""
    if not local.exists():
        local.symlink_to(target)
        return
    target.symlink_to(target)
    if _libc.renameat2(_AT_FDCWD, os.fsencode(local), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return
    why = ctypes.get_errno()
    target.unlink()
    if why == errno.EXDEV and any(living(local)):
        raise EmbeddedError(
            f"Local jobs of before still run in {local}, and their files have to be copied to another disk, {target.parent}. "
            "Wait until they are over, or start with MUSTER_JOB_USER=root until then."
        )
    if why != errno.EXDEV:
        raise EmbeddedError(f"{local} cannot be moved to {target}: {os.strerror(why)}")
    _copy_to_another_disk(local, target)
    copied = local.with_name("local.copied")
    local.rename(copied)
    local.symlink_to(target)
    trees.remove(copied)


def _copy_to_another_disk(local: Path, target: Path) -> None:
    """Copy all or nothing: a failed copy is removed, and the original stays."""
    try:
        _check_room(local, target)
        shutil.copytree(local, target, symlinks=True, ignore=_without_content)
    except EmbeddedError:
        raise
    except BaseException as error:
        trees.remove(target)
        if not isinstance(error, (OSError, RecursionError)):  # a job can nest folders endlessly
            raise
        raise EmbeddedError(
            f"The files of local jobs in {local} could not be copied to {target.parent}: {_first(error)}. Nothing was changed. "
            "Fix that, or start with MUSTER_JOB_USER=root."
        ) from error


def _check_room(local: Path, target: Path) -> None:
    needed = sum(path.lstat().st_blocks for path in local.rglob("*")) * BLOCK_BYTES
    free = shutil.disk_usage(target.parent).free
    if free < needed + FREE_BYTES:
        raise EmbeddedError(
            f"The files of local jobs in {local} ({needed >> 20} MiB) have to be copied to {target.parent}, which has "
            f"{free >> 20} MiB free and should keep {FREE_BYTES >> 20} MiB. Make room there, delete jobs' files in {local}, "
            "or start with MUSTER_JOB_USER=root."
        )


def _without_content(folder: str, names: list[str]) -> set[str]:
    """Return what to skip: sockets, pipes and devices cannot be copied, and are useless once their process is gone."""
    modes = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    return {
        name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    }


def _first(error: Exception) -> str:
    """Return the first reason: shutil.Error lists (source, copy, reason) of each file."""
    if isinstance(error, shutil.Error) and error.args and error.args[0]:
        source, _, reason = error.args[0][0]
        return f"{source}: {reason}"
    return "folders in it are nested too deeply" if isinstance(error, RecursionError) else str(error)


def _note(home: Path) -> dict[str, int]:
    return read_json(home / BELONGS_TO) or {}


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    with open(base / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
