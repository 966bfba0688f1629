"""Following a log on the real server while it restarts, is killed, or connections break: no line is lost or duplicated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from muster.client import AsyncClient, Client
from muster.jobs.models import Job as SeenJob

from accounts.models import Token
from embedded.ports import free_port
from jobs.ingest import apply
from jobs.models import Job
from tests.conftest import People
from tests.support.builders import Lab, batch, identity, log_item
from tests.support.patience import PATIENCE_SECONDS
from tests.support.site import Site, serve

BEGAN = 1_763_700_000
Follow = Callable[[str, str, int, list[Any]], None]


def one_after_the_other(url: str, token: str, job: int, heard: list[Any]) -> None:
    with Client(url, token) as client:
        for item in client.follow(job):
            heard.append(item)  # at once, so that the test sees its progress


def side_by_side(url: str, token: str, job: int, heard: list[Any]) -> None:
    async def follow() -> None:
        async with AsyncClient(url, token) as client:
            async for item in client.follow(job):
                heard.append(item)

    asyncio.run(follow())


class Reader:
    """A thread that follows a job, and what it has received so far."""

    def __init__(self, follow: Follow, url: str, token: str, job: int) -> None:
        self.heard: list[Any] = []
        # A daemon: a reader that receives nothing more must not block the end of the tests.
        self.thread = threading.Thread(target=follow, args=(url, token, job, self.heard), daemon=True)
        self.thread.start()

    @property
    def lines(self) -> list[str]:
        return [item.text for item in list(self.heard) if not isinstance(item, SeenJob)]

    @property
    def phases(self) -> list[str]:
        return [item.phase for item in list(self.heard) if isinstance(item, SeenJob)]

    def until(self, count: int) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while len(self.lines) < count:
            assert time.monotonic() < end and self.thread.is_alive(), (count, len(self.lines), self.phases)
            time.sleep(0.05)

    def until_end(self) -> None:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive(), (len(self.lines), self.phases)


class Printer:
    """A rank of the job: each call is a batch of its agent."""

    def __init__(self, job: Job) -> None:
        self.job, self.said, self.batches = job, list[str](), 0

    def __call__(self, count: int) -> None:
        first, self.batches = len(self.said), self.batches + 1
        self.said += [f"line {first + at}" for at in range(count)]
        lines = [(BEGAN + first + at, text) for at, text in enumerate(self.said[first:])]
        apply.apply_batch(identity=identity(self.job), batch=batch(self.batches, log_item(0, first, lines)))


@pytest.fixture
def job(transactional_db: None, lab: Lab) -> Job:
    return lab.running()


@pytest.fixture(params=[one_after_the_other, pytest.param(side_by_side, marks=pytest.mark.full)])
def follow(request: pytest.FixtureRequest) -> Follow:
    return request.param  # type: ignore[no-any-return]


def test_a_restart_loses_and_duplicates_nothing(follow: Follow, job: Job, lab: Lab, people: People) -> None:
    token, port = Token.issue(people.viewer, "reader")[1], free_port()
    says = Printer(job)
    says(1200)  # more than a page
    with serve(port) as site:
        reader = Reader(follow, site.url, token, job.pk)
        reader.until(1200)
        says(3)
        reader.until(1203)
        says(10)
    says(700)  # no server runs, the job continues
    with serve(port) as site:
        reader.until(1913)
        os.kill(site.pid, signal.SIGKILL)
        says(5)
    with serve(port):
        says(20)
        reader.until(1938)
        lab.finish(job, 0, 0)
        reader.until_end()

    assert reader.lines == says.said
    assert [one for one in reader.phases if one != "stopping"] == ["running", "succeeded"]


class Cutter:
    """A proxy that breaks connections in the middle of responses, later each time, so that everything arrives at last."""

    def __init__(self, site: Site, step: int) -> None:
        self.to, self.step, self.cuts = int(site.url.rpartition(":")[2]), step, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            for count in range(1, 1_000_000):
                client, server = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.to))
                threading.Thread(target=_carry, args=(client, server, None), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, count * self.step), daemon=True).start()

    def _answer(self, server: socket.socket, client: socket.socket, left: int) -> None:
        self.cuts += _carry(server, client, left)


@contextlib.contextmanager
def cutting(site: Site, *, step: int) -> Iterator[Cutter]:
    cutter = Cutter(site, step)
    with cutter.listener:
        yield cutter


def _carry(source: socket.socket, target: socket.socket, left: int | None) -> bool:
    """Copy up to `left` bytes. Return whether the proxy itself closed the connection."""
    is_cut = False
    with contextlib.suppress(OSError):
        while not is_cut and (piece := source.recv(4096)):
            target.sendall(piece if left is None else piece[:left])
            left = None if left is None else left - len(piece)
            is_cut = left is not None and left <= 0
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    return is_cut


def test_broken_connections_lose_and_duplicate_nothing(follow: Follow, job: Job, lab: Lab, people: People) -> None:
    token, says = Token.issue(people.viewer, "reader")[1], Printer(job)
    says(1100)
    with serve() as site, cutting(site, step=9000) as cutter:
        reader = Reader(follow, cutter.url, token, job.pk)
        reader.until(1100)
        for _ in range(5):
            says(40)
        lab.finish(job, 0, 0)
        reader.until_end()

    assert reader.lines == says.said
    assert reader.phases[-1] == "succeeded"
    assert cutter.cuts >= 5
