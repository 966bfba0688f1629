"""A whole installation on a free port, its client, and one signed-in browser: what every benchmark begins with."""

import contextlib
import functools
import http.cookiejar
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from muster.client import Client

from embedded.installation import Installation

from .page import Page

ROOT = Path(__file__).resolve().parents[1]


class Rig:
    """`pid` is the supervisor: everything lives below it."""

    def __init__(self, installation: Installation):
        self.installation = installation
        self.pid = installation.pids["supervisor"]
        self.url, self.token = installation.url, installation.token
        self.env = {**os.environ, **installation.env, "MUSTER_URL": self.url, "MUSTER_TOKEN": self.token}
        self.client = Client(self.url, self.token)

    @functools.cached_property
    def cookie(self) -> str:
        """Of one browser that stays signed in: checking a password is made dear on purpose, and happens once a day."""
        return self.sign_in()

    def sign_in(self) -> str:
        """The Cookie header of a browser in which the administrator signed in."""
        jar = http.cookiejar.CookieJar()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        browser.open(f"{self.url}/login").read()
        token = next(cookie.value for cookie in jar if cookie.name == "csrftoken")
        form = {
            "username": self.installation.user,
            "password": self.installation.password,
            "csrfmiddlewaretoken": str(token),
        }
        browser.open(f"{self.url}/login", urllib.parse.urlencode(form).encode()).read()
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)

    @property
    def browser_cookies(self) -> Any:
        """The same for Chromium: what a browser context of Playwright takes in `add_cookies`."""
        pairs = (pair.partition("=") for pair in self.cookie.split("; "))
        return [{"name": name, "value": value, "url": self.url} for name, _, value in pairs]

    def manage(self, *arguments: str) -> str:
        """`manage.py ...` with the installation's settings; what it printed."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            env=self.env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return done.stdout

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
def rig(folder: Path, *, environ: Mapping[str, str] | None = None) -> Iterator[Rig]:
    """As people run it, durable database and all; gone with its folder at the end."""
    began = time.monotonic()
    unbounded = {"MUSTER_LOCAL_SLOT_MIB": "0"}  # what is measured is Muster, not the memory of this machine
    with Installation(folder, environ={**unbounded, **(environ or {})}) as installation:
        found = Rig(installation)
        print(f"started in {time.monotonic() - began:.1f} s at {found.url}", flush=True)
        yield found
