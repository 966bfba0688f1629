"""An installation as a newcomer starts it (`bin/demo --no-job`), on a free port and in a folder of its own."""

import contextlib
import functools
import http.cookiejar
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster.client import Client
from muster.config import find_server

from .page import Page
from .procs import descendants

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 180


class Rig:
    """`pid` is the supervisor: everything but agents and ranks lives below it."""

    def __init__(self, folder: Path, *arguments: str):
        self.folder = folder
        self.env = {**os.environ, "MUSTER_DATA_DIR": str(folder)}
        for name in ("DATABASE_URL", "REDIS_URL", "MUSTER_SECRET_KEY", "MUSTER_URL", "MUSTER_TOKEN"):
            self.env.pop(name, None)
        self.process = subprocess.Popen(
            [str(ROOT / "bin/demo"), "--no-job", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env, cwd=ROOT,
        )  # fmt: skip
        self.pid = self.process.pid
        self.output: list[str] = []
        self.url = self._await_address()
        self.token = find_server(environ={"MUSTER_CONFIG": str(folder / "cli.json")}).token
        self.client = Client(self.url, self.token)

    def _await_address(self) -> str:
        assert self.process.stdout is not None
        found = ""
        for line in self.process.stdout:
            self.output.append(line)
            if match := re.search(r"address\s+(http\S+)", line):
                found = match[1]
            if found and "Ctrl-C" in line:
                threading.Thread(target=self._drain, daemon=True).start()
                return found
        raise RuntimeError("bin/demo did not start:\n" + "".join(self.output))

    def _drain(self) -> None:
        assert self.process.stdout is not None
        self.output.extend(self.process.stdout)

    @functools.cached_property
    def cookie(self) -> str:
        """Of one browser that stays signed in: checking a password is made dear on purpose, and happens once a day."""
        return self.sign_in()

    def sign_in(self) -> str:
        """The Cookie header of a browser in which the administrator signed in."""
        password = next(line.split()[1] for line in self.output if line.strip().startswith("password"))
        jar = http.cookiejar.CookieJar()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        browser.open(f"{self.url}/login").read()
        token = next(cookie.value for cookie in jar if cookie.name == "csrftoken")
        form = urllib.parse.urlencode({"username": "admin", "password": password, "csrfmiddlewaretoken": token})
        browser.open(f"{self.url}/login", form.encode()).read()
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)

    def setting(self, name: str) -> str:
        """An environment variable of its web process."""
        web = next(one for one in descendants(self.pid) if "uvicorn" in one.command)
        pairs = Path(f"/proc/{web.pid}/environ").read_bytes().split(b"\0")
        return next(pair.partition(b"=")[2].decode() for pair in pairs if pair.startswith(name.encode() + b"="))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(90)
        subprocess.run(
            [str(ROOT / "bin/demo"), "--reset", "--yes"], env=self.env, stdout=subprocess.DEVNULL, check=False
        )

    def submit(
        self, code: Path, command: list[str], *, nodes: int, nproc: int, env: Mapping[str, str] | None = None
    ) -> int:
        job = self.client.submit(
            command, queue="default", directory=code, nodes=nodes, nproc_per_node=nproc, env=dict(env or {})
        )
        return job.id

    def wait(self, job: int) -> None:
        ended = self.client.wait(job)
        if ended.phase != "succeeded":
            raise RuntimeError(f"job {job}: {ended.phase}: {ended.message}")

    @contextlib.contextmanager
    def watchers(self, job: int) -> Iterator[None]:
        """`muster logs -f` in a process of its own, and the job page as the requests that a browser makes."""
        follow = subprocess.Popen(
            [str(ROOT / "bin/muster"), "logs", "-f", str(job)],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        page = Page(self.url, self.cookie, job)
        page.open()
        try:
            yield
        finally:
            page.close()
            follow.terminate()
            follow.wait()


@contextlib.contextmanager
def rig(folder: Path, *arguments: str) -> Iterator[Rig]:
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    found = Rig(folder, *arguments)
    print(f"started in {time.monotonic() - began:.1f} s at {found.url}", flush=True)
    try:
        yield found
    finally:
        found.stop()
