"""A database with all tables, kept in the user's cache folder: to migrate one takes five seconds of CPU.

`folder` is the data of a stopped Postgres whose database `muster` is migrated; `build` makes it where it is missing. Its
name contains a digest of all migrations and locked packages, so a change of either needs another one.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from embedded.postgres import Postgres
from embedded.servers import Servers, stop_process

ROOT = Path(__file__).resolve().parents[2]
KEPT = 3  # of other digests: those of a branch beside this one


def folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "muster" / "test-templates" / digest()


def build() -> None:
    """Build this checkout's template unless it is there. Two runs that need it at once build it once."""
    wanted = folder()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with (wanted.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.is_dir():
            os.utime(wanted)  # the newest is the last to go
        else:
            _build(wanted)
            _forget(wanted.parent)


def digest() -> str:
    """Of everything that decides how the tables look: migrations, and the packages that bring some or run them."""
    seen = hashlib.sha256()
    for path in (
        *sorted(ROOT.glob("*/migrations/*.py")),
        ROOT / "requirements/dev.lock",
        ROOT / "embedded/postgres.py",
    ):
        seen.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return seen.hexdigest()[:16]


def _build(target: Path) -> None:
    draft = target.with_name(f".{target.name}")
    shutil.rmtree(draft, ignore_errors=True)  # of a build that was cut off
    with tempfile.TemporaryDirectory(prefix="muster-template-") as place:
        servers = Servers(Path(place) / "servers", is_temporary=True)
        servers.start()
        try:
            _migrate(servers.database_url)
        finally:
            for server, process in servers.hand_over():
                stop_process(process, signals=server.stop_signals)
        (postgres,) = [server for server in servers.servers if isinstance(server, Postgres)]
        shutil.copytree(postgres.data, draft)
        servers.clear()
    draft.rename(target)


def _migrate(url: str) -> None:
    env = {**os.environ, "DATABASE_URL": url, "MUSTER_SECRET_KEY": "only for tests"}
    words = ["manage.py", "migrate", "--settings", "tests.settings", "--verbosity", "0"]
    subprocess.run([sys.executable, *words], cwd=ROOT, env=env, check=True)


def _forget(home: Path) -> None:
    found = sorted((path for path in home.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in found[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
