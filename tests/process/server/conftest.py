"""muster-server as the image runs it: real processes, on a database that does not exist yet."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedded.ports import free_port
from tests.support.databases import Database
from tests.support.patience import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[3]
PEOPLE = """
    from accounts.models import Membership, Role, Team, Token, User
    from queues.models import Queue
    team = Team.objects.create(name="nlp")
    user = User.objects.create_user("ann", password="a-password-of-ann")
    Membership.objects.create(user=user, team=team, role=Role.MEMBER)
    Queue.objects.create(name="default", team=team, cluster="local", nominal=8)
    print(Token.issue(user, "x", scope="manage")[1])
"""
CLUSTERS = json.dumps({"memory": {"BACKEND": "jobs.clusters.memory.MemoryCluster", "OPTIONS": {}}})  # of filling.py


@pytest.fixture
def database() -> Iterator[Database]:
    found = Database()
    yield found
    found.drop()


class Process:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path):
        self._process, self._log, self.pid = process, log, process.pid

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until_said(self, words: str) -> None:
        until(lambda: words in self.said or self._process.poll() is not None)
        assert words in self.said, self.said

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_SECONDS)


class Server:
    """`run` waits for the end of a command and returns (exit code, what it said); `start` does not wait."""

    def __init__(self, folder: Path, database: Database):
        self.port = free_port()
        self._folder, self._number = folder, 0
        self.env = {
            **os.environ,
            "DATABASE_URL": database.url,
            "MUSTER_SECRET_KEY": "only-for-the-tests-of-muster-server-0000",
            "MUSTER_DATA_DIR": str(folder / "data"),
            "MUSTER_LOCAL_JOBS": "0",
            "MUSTER_LOG_LEVEL": "INFO",
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        }

    def run(self, *words: str, **env: str) -> tuple[int, str]:
        done = subprocess.run(
            self._argv(*words), env=self.env | env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def execute(self, *words: str) -> str:
        """Run Python with the settings of this server; returns what it printed."""
        done = subprocess.run(
            [sys.executable, *words], env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    @contextmanager
    def start(self, *words: str, **env: str) -> Iterator[Process]:
        self._number += 1
        log = self._folder / f"{self._number}.log"
        with log.open("wb") as out:
            child = subprocess.Popen(self._argv(*words), env=self.env | env, cwd=ROOT, stdout=out, stderr=out)
        found = Process(child, log)
        try:
            yield found
        finally:
            if found.is_running():
                found.kill()

    def _argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "controlplane.operations.server", *words]


@pytest.fixture
def server(tmp_path, database) -> Server:
    return Server(tmp_path, database)


@pytest.fixture
def token(server, database) -> str:
    """Of ann, who may submit to the queue `default` on the cluster `local`."""
    database.create_with_tables()
    return in_django(server, PEOPLE).strip()


def in_django(server, code: str, **env: str) -> str:
    text = "import django; django.setup()\n" + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", text], env=server.env | env, cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
