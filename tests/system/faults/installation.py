"""A whole installation for fault injection, a client of its API that retries, and its processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from muster.client import Client

from embedded.home import remove_home
from embedded.installation import Installation
from embedded.processes import Identity, identity, is_alive
from embedded.supervisor import HEALTHY_SECONDS
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.receiver import Receiver, receiver

ROOT = Path(__file__).resolve().parents[3]
CODE = ROOT / "tests/system/faults/code"
HOOK = """
from accounts.models import Team, User
from jobs.webhooks import services
asked = {{"name": "life", "url": "{url}", "events": ["start", "failure", "end"]}}
services.create(team=Team.objects.get(name="demo"), by=User.objects.get(username="admin"), **asked)
"""
RIGHT_SECONDS = 10.0  # the promised time to recover after the end of a fault


class Api:
    """A client of /api/v1 that retries while the server is away. `submit` is safe to repeat due to its idempotency key."""

    def __init__(self, url: str, token: str):
        self.url = url
        self._http = httpx.Client(
            base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
        )
        self._count = 0

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, *, seconds: float = PATIENCE_SECONDS, **options: Any) -> Any:
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = self._http.request(method, path, **options)
                if answer.status_code < 500 and answer.status_code != 429:
                    assert answer.status_code < 400, (method, path, answer.status_code, answer.text[:500])
                    return answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.text
            assert time.monotonic() < end, f"{method} {path} is not answered"
            time.sleep(0.1)

    def submit(self, *words: str, workspace: int, queue: str = "default", **asked: Any) -> int:
        self._count += 1
        body = {"queue": queue, "command": ["./fan", *words], "workspace": workspace, "nodes": 2, "nproc_per_node": 1}
        key = f"{os.getpid()}-{time.time_ns()}-{self._count}"
        return int(self.ask("POST", "/jobs", json={**body, **asked}, headers={"Idempotency-Key": key})["id"])

    def job(self, job: int) -> dict[str, Any]:
        return dict(self.ask("GET", f"/jobs/{job}"))

    def act(self, job: int, verb: str) -> dict[str, Any]:
        return dict(self.ask("POST", f"/jobs/{job}/{verb}", json={}))

    def events(self, job: int) -> list[dict[str, Any]]:
        return list(self.ask("GET", f"/jobs/{job}/events")["results"])

    def lines(self, job: int) -> list[dict[str, Any]]:
        """All lines of a finished job, read page by page with a cursor."""
        found: list[dict[str, Any]] = []
        asked: dict[str, Any] = {"limit": 5000}
        while True:
            page = self.ask("GET", f"/jobs/{job}/logs", params=asked)
            found += page["lines"]
            if page["is_complete"]:
                return found
            asked["cursor"] = page["cursor"]


@dataclass
class RunningInstallation:
    """`marks` is the folder in which fault points are armed, at any time, and leave their marks."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    slots: int = 200
    checkout: Path = ROOT

    def __post_init__(self) -> None:
        self.marks = self.folder.parent / f"{self.folder.name}-marks"
        self.marks.mkdir(parents=True, exist_ok=True)
        self.workspace, self.password, self.running = 0, "", self.checkout
        self.api: Api = None  # type: ignore[assignment]  # set by start()
        self.muster: Installation = None  # type: ignore[assignment]
        self.receiver: Receiver | None = None
        self._open = contextlib.ExitStack()

    def start(self, checkout: Path | None = None) -> None:
        """Durable, unlike in other tests: commits that Postgres confirmed must survive a kill."""
        # Agents leave their marks in a folder of the tests, and are found by the paths of their folders.
        env = {"CRASH_MARKS": str(self.marks), "MUSTER_JOB_ENV": "CRASH_*", "MUSTER_JOB_USER": "root", **self.environ}
        env["MUSTER_WEBHOOK_NETWORKS"] = "127.0.0.0/8"
        if os.geteuid() != 0:
            del env["MUSTER_JOB_USER"]
        self.running = checkout or self.checkout  # whose code knows the tables
        self.muster = Installation(self.folder, environ=env, checkout=self.running)
        # The administrator's password is set at the first start and stays valid for the folder.
        self.password = self.muster.password = self.password or self.muster.password
        self.muster.start()
        self.api = Api(self.muster.url, self.muster.token)

    def furnish(self) -> None:
        """Set a large quota, add a queue that is easily full and a webhook, and upload the code of the jobs."""
        self.manage("queue", "default", "--team", "demo", "--slots", str(self.slots))
        self.manage("queue", "narrow", "--team", "demo", "--slots", "2")
        self.receiver = self._open.enter_context(receiver())
        self.manage("shell", "-c", HOOK.format(url=self.receiver.url))
        with Client(self.muster.url, self.muster.token) as client:
            self.workspace = client.upload(CODE, queue="default").id

    def submit(self, *words: str, **asked: Any) -> int:
        return self.api.submit(*words, workspace=self.workspace, **asked)

    def stop(self) -> None:
        """Kill everything and delete all data, including the database."""
        self.kill_all()
        self._open.close()
        remove_home(self.folder)

    def manage(self, *arguments: str, checkout: Path | None = None) -> str:
        ended = self.command(*arguments, checkout=checkout)
        assert ended.returncode == 0, (arguments, ended.stderr)
        return ended.stdout

    def command(self, *arguments: str, checkout: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a management command that may fail or be killed."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=checkout or self.running, env=self.muster.env, check=False, capture_output=True,
            text=True,
        )  # fmt: skip

    # -- fault points

    def arm(self, *points: str, number: str = "") -> None:
        for point in points:
            (self.marks / point).unlink(missing_ok=True)
            (self.marks / f"{point}.armed").write_text(number)

    def disarm(self) -> None:
        for path in self.marks.glob("*.armed"):
            path.unlink(missing_ok=True)

    def fired(self, point: str) -> int:
        """The id of the process that reached this point; 0 if none did, or if the mark shows only how it was armed."""
        with contextlib.suppress(FileNotFoundError):
            words = (self.marks / point).read_text().split()
            return int(words[0]) if len(words) > 1 else 0
        return 0

    def fired_at(self, point: str) -> float:
        return float((self.marks / point).read_text().split()[1])

    # -- processes

    def pid(self, name: str) -> int:
        return self.muster.pids[name]

    def until_healthy(self, name: str) -> None:
        """Wait until the process has run long enough that the supervisor restarts it without backoff after its next death."""

        def is_healthy() -> bool:
            with contextlib.suppress(psutil.NoSuchProcess):
                return time.time() - psutil.Process(self.pid(name)).create_time() > HEALTHY_SECONDS + 0.5
            return False

        until(is_healthy, says=f"{name} lives for a while")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def agents(self, job: int | None = None) -> list[tuple[int, Path]]:
        """Live agents, each with the folder of its replica."""
        found = []
        inside = f"{self.folder}/local/jobs/{'' if job is None else f'{job}-'}"
        for pid, words in commands():
            if "--state" in words and words[-1].startswith(inside):
                found.append((pid, Path(words[-1])))
        return found

    def carriers(self, job: int | None = None) -> list[int]:
        """Every process that works for a job, found by its environment."""
        wanted = f"MUSTER_SHARED={self.folder}/local/jobs/{'' if job is None else f'{job}-'}".encode()
        return [pid for pid, env in environments() if any(value.startswith(wanted) for value in env)]

    def kill_all(self) -> None:
        """Kill every process, as when the machine loses power: none can clean up."""
        wanted = f"MUSTER_DATA_DIR={self.folder}".encode()
        killed = set()
        while True:
            ours = {pid for pid, env in environments() if wanted in env}
            ours |= {pid for pid, _ in self.agents()} | set(self.carriers()) | set(self._servers())
            if not ours:
                break
            for pid in ours:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= ours
            time.sleep(0.02)
        self.muster.kill()  # reaps the supervisor; after a real reboot even its process id would be unknown
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in killed), says="everything is gone")

    def _servers(self) -> Iterator[int]:
        """Postgres with its children, and Redis: their environment does not identify them."""
        try:
            known = json.loads((self.folder / "running.json").read_text())
        except (OSError, ValueError):
            return
        for name in ("postgres", "redis"):
            if name in known and is_alive(one := Identity(**known[name])):
                yield from descendants(one.pid)
                yield one.pid

    def shared(self, job: int) -> Path:
        (folder,) = (self.folder / "local/jobs").glob(f"{job}-*")
        return folder / "shared"

    def finish(self, job: int) -> None:
        (self.shared(job) / "finish").touch()


@contextlib.contextmanager
def furnished(folder: Path, checkout: Path = ROOT) -> Iterator[RunningInstallation]:
    """A started installation with the queues, the webhook and the code of the jobs, deleted at the end."""
    found = RunningInstallation(folder, checkout=checkout)
    try:
        found.start()
        found.furnish()
        yield found
    finally:
        found.stop()


def commands() -> Iterator[tuple[int, list[str]]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and identity(int(entry.name)):
            with contextlib.suppress(OSError):
                yield (
                    int(entry.name),
                    Path(entry.path, "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1],
                )


def environments() -> Iterator[tuple[int, list[bytes]]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and identity(int(entry.name)):
            with contextlib.suppress(OSError):
                yield int(entry.name), Path(entry.path, "environ").read_bytes().split(b"\0")


def descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [*descendants(int(child)), int(child)]
    return found
