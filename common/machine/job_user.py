"""The user that local jobs run as where Muster itself runs as root.

Imports no Django: bin/demo's supervisor uses it too. Root may start a process under any uid, with or without an
account. By default a uid without an account is used, so nothing on the machine belongs to it and no account has to be
created.
"""

import os
import pwd
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

AS_ROOT = "root"
# Debian reserves 30000 to 59999 and adduser assigns accounts from 1000 upwards, so this end of the range stays free.
FREE_UIDS = range(54900, 55900)


class BadJobUser(ValueError):
    """A bad MUSTER_JOB_USER; the message names the setting, its value and how to fix it."""


@dataclass(frozen=True)
class JobUser:
    name: str
    uid: int
    gid: int


def find(setting: str, *, taken: Collection[int] = ()) -> JobUser | None:
    """Return the user that jobs are started as; None: the same as Muster's. Raises BadJobUser.

    `taken`: uids that own files of other programs, such as the database's.
    """
    if os.geteuid() != 0:
        _need_ourselves(setting)
        return None
    if setting == AS_ROOT:
        return None
    user = _named(setting) if setting else _free(taken)
    if user.uid == 0:
        raise BadJobUser(
            f"MUSTER_JOB_USER is {setting}, which is root; name another user, or set {AS_ROOT} to confirm it"
        )
    if setting and user.uid in taken:
        raise BadJobUser(f"MUSTER_JOB_USER is {setting}, whose files the database uses; name another user")
    return user


def can_run(words: Sequence[str | Path], user: JobUser) -> bool:
    """Return whether that user may run this program.

    Trying is the only sure answer: modes, ACLs, noexec and user namespaces. Processes of the same user may read each
    other's environment, so ours, with its secrets, is not passed on.
    """
    try:
        ended = subprocess.run(
            [str(word) for word in words], capture_output=True, cwd="/", user=user.uid, group=user.gid, extra_groups=[],
            timeout=60, check=False, env=bare_environment(),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return ended.returncode == 0


def bare_environment() -> dict[str, str]:
    """Return only the variables needed to find and load a program."""
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}


def name_of(uid: int) -> str:
    """Return the value for USER: the account's name, or a made-up one for a uid without an account."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"muster-{uid}"


def _need_ourselves(setting: str) -> None:
    own = os.geteuid()
    if setting and setting != str(own) and _uid_of(setting) != own:
        raise BadJobUser(
            f"MUSTER_JOB_USER is {setting}, but only root can start jobs as another user; unset it, or start Muster as root"
        )


def _named(setting: str) -> JobUser:
    if setting.isdecimal():
        if not 0 <= int(setting) < 2**32 - 1:
            raise BadJobUser(f"MUSTER_JOB_USER is {setting}; as a number it must be below {2**32 - 1}")
        try:
            entry = pwd.getpwuid(int(setting))
        except KeyError:
            return JobUser(name_of(int(setting)), int(setting), int(setting))
        return JobUser(entry.pw_name, entry.pw_uid, entry.pw_gid)
    uid = _uid_of(setting)
    if uid is None:
        raise BadJobUser(
            f"MUSTER_JOB_USER is {setting}, which is not a user of this machine; give a name or a number, or unset it"
        )
    return JobUser(setting, uid, pwd.getpwuid(uid).pw_gid)


def _free(taken: Collection[int]) -> JobUser:
    known = {entry.pw_uid for entry in pwd.getpwall()} | set(taken)
    uid = next(number for number in FREE_UIDS if number not in known)
    return JobUser(name_of(uid), uid, uid)


def _uid_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
