"""What these tests run and inspect outside the code: bin/demo, processes, file modes, and interpreters of ordinary users."""

import contextlib
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import httpx

from embedded.account import Account, can_run
from embedded.installation import Installation

ROOT = Path(__file__).resolve().parents[3]


def environ(folder: Path) -> dict[str, str]:
    """The environment of bin/demo with its data in this folder: without what these tests and a demo that runs them set."""
    kept = dict(os.environ)
    for name in ("DATABASE_URL", "REDIS_URL", "MUSTER_SECRET_KEY", "MUSTER_ALLOWED_HOSTS", "MUSTER_PUBLIC_URL"):
        kept.pop(name, None)
    return {**kept, "MUSTER_DATA_DIR": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT}/client"}


def demo(folder: Path, *arguments: str, seconds: float = 600) -> "subprocess.CompletedProcess[str]":
    """Run bin/demo with these arguments, as in another terminal."""
    argv = [sys.executable, "-m", "embedded", "demo", *arguments]
    return subprocess.run(argv, env=environ(folder), text=True, capture_output=True, timeout=seconds, check=False)


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, TimeoutError):  # not listening yet, or too busy to answer
        return 0


def sign_in(muster: Installation, password: str) -> httpx.Client:
    client = httpx.Client(base_url=muster.url, timeout=60)
    client.get("/login")
    post(client, "/login", username="admin", password=password)
    return client


def post(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return client.post(path, data={**fields, "csrfmiddlewaretoken": client.cookies["csrftoken"]})


def processes_naming(text: str) -> list[str]:
    """Return the command lines of other processes that contain this text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            found += [line] if text in line else []
    return found


def children(pid: int) -> list[int]:
    """Return all descendants of this process; threads and processes may end meanwhile."""
    direct: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                direct += map(int, (task / "children").read_text().split())
    return direct + [one for child in direct for one in children(child)]


def modes(paths: Iterable[Path]) -> dict[str, tuple[int, int, int]]:
    """Return mode, owner and group of each path that exists."""
    found = {}
    for path in paths:
        try:
            about = path.lstat()
        except OSError:
            continue
        found[str(path)] = (stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid)
    return found


def around(path: Path) -> list[Path]:
    """Return every folder above this one, and the entries of the two nearest."""
    near = [one for parent in list(path.parents)[:2] for one in parent.iterdir() if one != path]
    return [*path.parents, *near]


def python_for(account: Account | None) -> str | None:
    """Return an interpreter, 3.11 or newer, that this user may run, if any."""
    wanted = "import sys; sys.exit(sys.version_info < (3, 11))"
    places = [sys.executable, f"{sys.base_prefix}/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3"]
    return next((one for one in places if Path(one).exists() and can_run([one, "-c", wanted], account=account)), None)
