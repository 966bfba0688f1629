"""One data folder, started twice: on a terminal until Ctrl-C, then for other hosts."""

import os
import pty
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from embedded.installation import Installation
from embedded.processes import Identity, identity
from tests.process.embedded import jobs
from tests.process.embedded.world import children, demo, environ, sign_in


@dataclass
class First:
    """What was seen of the first start, which Ctrl-C ended while a job ran."""

    folder: Path
    password: str
    token: str
    pages: int  # the status of a page for somebody who signed in with the password
    job: int
    step: int  # that the job had saved
    processes: list[Identity | None]
    files: set[str]  # that were left in the folder
    code: int
    said: str


@pytest.fixture(scope="session")
def first(tmp_path_factory) -> First:
    folder = tmp_path_factory.mktemp("twice") / "data"
    pid, terminal = pty.fork()
    if pid == 0:
        words = [sys.executable, "-m", "embedded", "demo", "--no-job", "--port", "0"]
        os.execve(sys.executable, words, environ(folder))
    said = b""
    while b"Ctrl-C" not in said:
        said += os.read(terminal, 4096)
    running = Installation(folder)  # it is not started here, only read
    password = re.search(r"password  (\S+)", said.decode())[1]
    token, pages = running.token, sign_in(running, password).get("/jobs").status_code
    job = jobs.started(running, folder.parent)
    everything = [identity(one) for one in children(pid)]
    os.write(terminal, b"\x03")
    with suppress(OSError):  # at its end
        while more := os.read(terminal, 4096):
            said += more
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    step = jobs.step_of(running, job)
    files = {one.name for one in folder.iterdir()}
    return First(folder, password, token, pages, job, step, everything, files, code, said.decode())


@pytest.fixture(scope="session")
def muster(first: First) -> Iterator[Installation]:
    """The second start, as with --host: the one installation of all tests that do not start their own."""
    hosts = {"MUSTER_ALLOWED_HOSTS": "127.0.0.1,muster.example"}
    with Installation(first.folder, environ=hosts, options=("--no-job", "--resume")) as running:
        home = (running.folder / "local").resolve()
        yield running
    assert demo(first.folder, "--reset", "--yes").returncode == 0  # removes what it keeps outside that folder
    assert not first.folder.exists() and not home.exists()
