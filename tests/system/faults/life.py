"""Typical activity of users and jobs, enough to pass every fault point."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster.client import Client
from muster.errors import MusterError

from tests.support.patience import until
from tests.system.faults.checks import check, check_told
from tests.system.faults.installation import CODE, Api, RunningInstallation

RETRIES = 3  # agents may die this often during one life


class Life:
    """One round of activity. Every step is retried while the server is away, as a user or a script would."""

    def __init__(self, installation: RunningInstallation, folder: Path):
        self.installation, self.folder = installation, folder
        self.jobs: list[int] = []
        self.workspace = 0

    def begin(self) -> None:
        """Sign in, upload new code, and submit three jobs: one ends, one is suspended for a while, one is cancelled.

        The suspended one has two roles.
        """
        self.sign_in()
        self.workspace = self.upload()
        ranks = ["python3", "-S", "-E", "rank.py", "--paused", "--series"]
        self.short = self.submit("--lines", "10")
        self.paused = self.submit(framework="plain", command=ranks, helper_command=ranks)
        self.cancelled = self.submit("--cancelled")

    def live(self) -> None:
        self.begin()
        self.go_on()
        self.until_phase(self.short, "succeeded")
        until(lambda: self.installation.api.lines(self.short), says="lines to read")

    def go_on(self) -> None:
        api = self.installation.api
        self.until_phase(self.paused, "running")
        self.until_phase(self.cancelled, "running")
        api.act(self.paused, "suspend")
        api.act(self.cancelled, "cancel")
        self.until_phase(self.paused, "suspended")
        api.ask("GET", f"/jobs/{self.short}/logs")
        api.act(self.paused, "resume")

    def end(self) -> None:
        """Wait until every job is over."""
        until(lambda: self._finished(self.paused), says=f"job {self.paused} over")
        for job in (self.short, self.cancelled):
            self.until_phase(job, "succeeded", "cancelled", "failed")

    def check(self) -> None:
        check(self.installation, self.short)
        check(self.installation, self.paused)
        check(self.installation, self.cancelled, phases=("cancelled",))
        for job, end in ((self.short, "succeeded"), (self.paused, "succeeded"), (self.cancelled, "cancelled")):
            check_told(self.installation, job, end)
        notes = [
            one for one in self.installation.api.events(self.paused) if one["message"].startswith("Too many series: ")
        ]
        attempts = [one["attempt"] for one in notes]
        assert attempts and len(set(attempts)) == len(attempts), notes

    def submit(self, *words: str, **asked: Any) -> int:
        return self.installation.api.submit(*words, workspace=self.workspace, max_retries=RETRIES, **asked)

    def until_phase(self, job: int, *phases: str) -> None:
        until(lambda: self.installation.api.job(job)["phase"] in phases, says=f"job {job} in {phases}")

    def sign_in(self) -> None:
        """Create a token, and use it to look at oneself and to test the webhook."""
        body = {"username": "admin", "password": self.installation.muster.password, "name": "a life", "scope": "manage"}
        token = self.installation.api.ask("POST", "/login", json=body)["token"]
        visitor = Api(self.installation.muster.url, token)
        visitor.ask("GET", "/me")
        visitor.ask("POST", "/teams/demo/webhooks/life/test", json={})
        visitor.close()

    def upload(self) -> int:
        """Upload content that was never sent before, since known content is not stored again."""
        code = self.folder / f"code-{time.time_ns()}"
        shutil.copytree(CODE, code)
        (code / "new.txt").write_text(str(time.time_ns()))
        found: list[int] = []

        def is_sent() -> bool:
            with (
                contextlib.suppress(MusterError),
                Client(self.installation.muster.url, self.installation.muster.token) as client,
            ):
                found.append(client.upload(code, queue="default").id)
            return bool(found)

        until(is_sent, says="code sent")
        return found[0]

    def _finished(self, job: int) -> bool:
        with contextlib.suppress(ValueError, OSError):
            self.installation.finish(job)
        return bool(self.installation.api.job(job)["is_finished"])


@contextlib.contextmanager
def slow_visit(installation: RunningInstallation, job: int) -> Iterator[None]:
    """Hold the attempt's lock, so that a visit that ends this running job takes until the lock is released."""
    (folder,) = (installation.folder / "local/jobs").glob(f"{job}-*/1")
    lock = os.open(folder / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(lock)
