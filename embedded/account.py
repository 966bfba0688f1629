"""Postgres refuses to run as root; then it runs as a system user, in a folder of ours that this user can reach."""

import os
import pwd
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.machine.job_user import bare_environment

from . import EmbeddedError

PREFERRED = ("postgres", "nobody", "daemon")


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int


def server_account(preferred: Iterable[str] = PREFERRED) -> Account | None:
    """Return the user to run the servers as; None: the current one. Raises EmbeddedError."""
    if os.geteuid() != 0:
        return None
    for name in preferred:
        account = _named(name)
        if account and can_run(["true"], account=account):
            return account
    raise EmbeddedError(
        "Postgres does not run as root, and no system user (postgres, nobody, daemon) can be used here. "
        "Run this as an ordinary user, or set DATABASE_URL and REDIS_URL to servers of your own."
    )


def can_run(argv: Iterable[str | Path], *, account: Account | None) -> bool:
    """Return whether that user may run this program.

    Trying is the only sure answer: modes, ACLs, noexec and user namespaces.
    """
    who: dict[str, Any] = {}
    if account is not None:  # that user's other processes may read the environment, so ours is not passed on
        who = {"user": account.uid, "group": account.gid, "extra_groups": [], "env": bare_environment()}
    try:
        ended = subprocess.run([str(part) for part in argv], capture_output=True, cwd="/", **who)
    except (OSError, subprocess.SubprocessError):
        return False
    return bool(ended.returncode == 0)


def give(path: Path, *, account: Account | None) -> None:
    """Make that user the owner of a path of ours."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def _named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid) if entry.pw_uid else None
