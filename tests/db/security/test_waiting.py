"""Every request is answered in bounded time, and no waiting request holds a database connection: every route is
requested while eight requests wait and eight answers are not read, and again while Postgres is stopped.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle, islice
from typing import NamedTuple

import httpx
import psutil
import pytest
from psycopg_pool.base import AttemptWithBackoff

from accounts.models import Token
from common import addresses
from jobs.ingest import agent_tokens, apply
from tests.conftest import make_user
from tests.db.security.routes import AGENT, API, OPEN, TABLE, AccessFixture, address, body
from tests.support import servers
from tests.support.builders import batch, identity, log_item
from tests.support.patience import PATIENCE_SECONDS
from tests.support.site import Site, serve

pytestmark = pytest.mark.ci

POOL = 8  # connections of the web process, the default
SHORT = "2"  # seconds for the database, with a stopped Postgres; changes nothing else
BEGAN = 1_763_700_000


@pytest.fixture
def world(transactional_db, lab, people) -> AccessFixture:
    return AccessFixture(lab, people)


class Asked(NamedTuple):
    method: str
    pattern: str
    status: int
    retry_after: str


class Doors:
    """Clients for each kind of door, signed in before the server is put under load."""

    def __init__(self, site: Site, world: AccessFixture):
        self.world = world
        # Requests of one user queue, so pages and API are used by different users, several of each in turn.
        roots = [make_user(f"root-{number}", is_superuser=True) for number in range(6)]
        pages = [site.sign_in(root.username) for root in roots[:3]]
        api = [self._bearer(site, Token.issue(root, "doors", scope="manage")[1]) for root in roots[3:]]
        self.page, self.api = pages[0], api[0]
        self.agent = self._bearer(site, agent_tokens.issue(identity(world.job)))
        self._clients = [*pages, *api, self.agent]
        self._turns = {API: cycle(api), AGENT: cycle([self.agent])}
        self._pages = cycle(pages)

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def ask(self, method: str, pattern: str, path: str = "") -> Asked:
        """Reads only the head of the answer, since a stream has no end."""
        route = TABLE[pattern]
        client = next(self._turns.get(route.door, self._pages))
        headers = {"Content-Type": route.kind, "X-CSRFToken": client.cookies.get("csrftoken", "")}
        content = body(pattern, self.world) if method not in ("GET", "HEAD") else None
        with client.stream(method, path or address(pattern, self.world), content=content, headers=headers) as answer:
            return Asked(method, pattern, answer.status_code, answer.headers.get("Retry-After", ""))

    @staticmethod
    def _bearer(site: Site, token: str) -> httpx.Client:
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=0)
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=site.url, headers=headers, timeout=PATIENCE_SECONDS, limits=limits)


@pytest.fixture
def doors(site, world) -> Iterator[Doors]:
    with closing(Doors(site, world)) as doors:
        yield doors


def walk(doors: Doors, methods: tuple[str, ...]) -> list[Asked]:
    asked = [
        (method, pattern) for pattern, route in sorted(TABLE.items()) for method in route.rules if method in methods
    ]
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda one: doors.ask(*one), asked))


@contextmanager
def waiters(doors: Doors, world: AccessFixture, *, statuses: tuple[int, ...] = (200,)) -> Iterator[None]:
    """Eight repeated long polls for lines, eight streams of the log and eight of hints."""
    over = threading.Event()
    logs = f"/api/v1/jobs/{world.job.pk}/logs"
    cursor = doors.api.get(logs).json()["cursor"]
    begun = threading.Semaphore(0)

    def wait() -> None:
        while not over.is_set():
            with doors.api.stream("GET", logs, params={"wait": 20, "cursor": cursor}) as answer:
                assert answer.status_code in statuses, answer.read()
                begun.release()
                for _ in answer.iter_bytes():
                    pass

    with ExitStack() as open_:
        pool = open_.enter_context(ThreadPoolExecutor(POOL))
        open_.callback(over.set)
        for path in [f"{logs}/stream?cursor={cursor}"] * POOL:
            open_.enter_context(doors.api.stream("GET", path))
        for _ in range(POOL):
            open_.enter_context(doors.page.stream("GET", "/live"))
        waiting = [pool.submit(wait) for _ in range(POOL)]
        for _ in range(POOL):
            assert begun.acquire(timeout=PATIENCE_SECONDS)
        yield
        over.set()
        lab_line(world, seq=2)  # new lines for all of them
    for one in waiting:
        one.result(PATIENCE_SECONDS)


def lab_line(world: AccessFixture, *, seq: int) -> None:
    lines = log_item(2, seq - 1, [(BEGAN + seq, f"line {seq}")])
    apply.apply_batch(identity=identity(world.job, 1), batch=batch(seq, lines))


def test_every_route_answers_while_eight_requests_wait(doors, world):
    with waiters(doors, world):
        answers = walk(doors, ("GET", "HEAD"))
    assert [one for one in answers if one.status >= 500] == []


def unread(site: Site, path: str, token: str) -> socket.socket:
    """A client that sends a request and then reads nothing, so that the server cannot send on."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect(("127.0.0.1", int(site.url.rpartition(":")[2])))
    link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert link.recv(1, socket.MSG_PEEK) == b"H"
    return link


@pytest.mark.parametrize("path", ["/api/v1/jobs/{pk}/logs?limit=10000", "/api/v1/jobs/{pk}/logs/text"])
def test_an_unread_answer_holds_no_database_connection(doors, site, world, path):
    for seq in range(2, 12):
        lines = [(BEGAN + seq, "x" * 8000) for _ in range(100)]
        apply.apply_batch(identity=identity(world.job, 1), batch=batch(seq, log_item(2, 100 * seq, lines)))
    # Several users: with one user, some requests would wait a minute until the others are aborted.
    tokens = [Token.issue(world.persons[one], "slow", scope="read")[1] for one in ("viewer", "member", "admin")]
    with ExitStack() as links:
        for token in islice(cycle(tokens), POOL + 2):
            links.enter_context(closing(unread(site, path.format(pk=world.job.pk), token)))
        assert doors.ask("GET", "jobs").status == 200


@contextmanager
def stopped_postgres() -> Iterator[None]:
    """Suspends the server and all its children: clients get no answer at all."""
    (_, running), *_ = servers.reserved
    parent = psutil.Process(running.running["postgres"].pid)
    family = [parent]
    # If anything hangs, this test still ends.
    waker = threading.Timer(2 * PATIENCE_SECONDS, lambda: [os.kill(one.pid, signal.SIGCONT) for one in family])
    waker.start()
    parent.suspend()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while parent.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline, "Postgres does not stop"
        time.sleep(0.01)
    # Listed only now: a backend forked after its children were listed would still answer.
    family += parent.children(recursive=True)
    for one in family[1:]:
        one.suspend()
    try:
        yield
    finally:
        waker.cancel()
        for one in reversed(family):
            one.resume()


@pytest.fixture
def impatient(world) -> Iterator[Doors]:
    """Doors of a web process that does not wait long for the database."""
    with serve(MUSTER_DB_SECONDS=SHORT) as site, closing(Doors(site, world)) as doors:
        yield doors


def test_every_route_answers_while_postgres_is_stopped(impatient, world):
    doors = impatient
    with waiters(doors, world, statuses=(200, 503)), stopped_postgres():
        assert doors.ask("GET", "healthz").status == 200
        answers = walk(doors, ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))
        assert doors.ask("GET", "healthz").status == 200
    by_itself = [one for one in answers if one.pattern in ("healthz", "static/muster.css") and one.status == 200]
    assert len(by_itself) == 4
    wrong = [one for one in answers if one.status >= 500 and (one.status, bool(one.retry_after)) != (503, True)]
    assert [one for one in wrong if one.pattern != "readyz"] == []
    assert {one.status for one in answers if one.pattern == "readyz"} == {503}
    assert {one.status for one in answers if TABLE[one.pattern].door != OPEN} == {503}
    deadline = time.monotonic() + PATIENCE_SECONDS
    for pattern in ("jobs", "api/v1/me", "live"):
        while doors.ask("GET", pattern).status != 200:
            assert time.monotonic() < deadline, "it does not come back"


def test_a_database_that_was_away_for_long_is_retried_soon():
    """With the pool's default of five minutes, it was retried only a minute after its return."""
    options = addresses.database("postgres://u@h/m", pool=POOL)["OPTIONS"]["pool"]
    attempt, now, delays = AttemptWithBackoff(timeout=options["reconnect_timeout"]), 0.0, []
    while not attempt.time_to_give_up(now):
        attempt.update_delay(now)
        now += attempt.delay
        delays.append(attempt.delay)
    assert max(delays) < 5
