"""The secrets of an installation in containers, made once: a folder for each service that reads them.

muster/    secret_key, database_url, redis_url     read by Muster's processes
           old_secret_keys                         only where the key was replaced, separated by commas
postgres/  password        redis/  password        read by that server alone
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

SERVER_USERS = {"muster": 10001, "postgres": 999, "redis": 999}  # as their images run
DATABASE = "postgres://muster:{password}@postgres:5432/muster"
REDIS = "redis://:{password}@redis:6379/0"


def make(folder: Path, *, key: str = "", old_keys: Sequence[str] = ()) -> Iterator[str]:
    """Write what is missing; yields a line for each file. Passwords are hexadecimal digits: they stand in addresses.

    `key`, `old_keys`: the secret key to use instead of a new one, and earlier ones, of a backup that is to be restored.
    Raises FileExistsError if there are others: data may be encrypted with them.
    """
    path, old = folder / "muster" / "secret_key", folder / "muster" / "old_secret_keys"
    there = old.read_text().strip().split(",") if old_keys and old.exists() else list(old_keys)
    if set(old_keys) - set(there):
        raise FileExistsError(f"{old} lacks earlier keys of the backup; restore into new volumes, or remove it first")
    if key and path.exists() and path.read_text().strip() != key:
        raise FileExistsError(f"{path} holds another key; restore into new volumes, or remove it first")
    for name in ("postgres", "redis"):
        yield from _write(folder / name / "password", secrets.token_hex(24))
    passwords = {name: (folder / name / "password").read_text().strip() for name in ("postgres", "redis")}
    yield from _write(path, key or secrets.token_hex(32))
    if old_keys:
        yield from _write(old, ",".join(old_keys))
    # Follow from the passwords, so they are written each time: an interrupted first start leaves no other password there.
    yield from _write(folder / "muster" / "database_url", DATABASE.format(password=passwords["postgres"]), again=True)
    yield from _write(folder / "muster" / "redis_url", REDIS.format(password=passwords["redis"]), again=True)


def _write(path: Path, content: str, *, again: bool = False) -> Iterator[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    _hand_over(path.parent, mode=0o700)
    if path.exists() and not again:
        yield f"{path} is there"
        return
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
        file.write(content)
    _hand_over(draft, mode=0o400)
    draft.rename(path)
    yield f"{path} was written"


def _hand_over(path: Path, *, mode: int) -> None:
    """Give a file to the user of the server that reads it; only root can, everybody else keeps it."""
    path.chmod(mode)
    if os.geteuid() == 0:
        user = SERVER_USERS[path.name if path.is_dir() else path.parent.name]
        os.chown(path, user, user)
