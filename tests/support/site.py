"""The real web process on the test database, for streams and browsers, which Django's test client cannot serve."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

import httpx
from django.conf import settings
from django.db import connection

from embedded.ports import listen
from tests.support.patience import PATIENCE_SECONDS


@dataclass(frozen=True)
class Site:
    url: str
    pid: int

    def sign_in(self, name: str) -> httpx.Client:
        client = httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS)
        client.get("/login")
        sent = {
            "username": name,
            "password": f"{name}-has-a-password",
            "csrfmiddlewaretoken": client.cookies["csrftoken"],
        }
        assert client.post("/login", data=sent).status_code == 302
        return client


@contextmanager
def serve(port: int = 0, **settings_: str) -> Iterator[Site]:
    """Raises RuntimeError if the process ends before it answers."""
    # The process inherits the socket: a port that is only free would be anybody's until the process has started.
    with listen("127.0.0.1", port=port) as door:
        found = door.getsockname()[1]
        assert port in (0, found), f"port {port} is in use"
        process = _start(door.fileno(), settings_)
    try:
        site = Site(f"http://127.0.0.1:{found}", process.pid)
        _wait_until_up(site, process)
        yield site
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _start(door: int, settings_: dict[str, str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "DATABASE_URL": _test_database_url(),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        **settings_,
    }
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "uvicorn",
            "controlplane.asgi:application",
            "--fd",
            str(door),
            "--http",
            "controlplane.edge.http_protocol:BoundedHttp",
            "--timeout-graceful-shutdown",
            "1",
            "--log-level",
            "error",
            "--no-server-header",
            "--no-proxy-headers",
        ],
        env=environment,
        pass_fds=(door,),
    )


@contextmanager
def serve_many(**settings_: str) -> Iterator[Site]:
    """One web process for many tests, since each takes seconds of CPU to start: it does not limit sign-ins by address.

    A test that used it calls `settle` before its database is emptied.
    """
    with serve(MUSTER_RATE_LOGIN="0", **settings_) as site:
        yield site


def settle() -> None:
    """Wait until nobody else is at work in the test database: emptying it would wait for them, and they for it."""
    others = (
        "SELECT string_agg(query, '; ') FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
    )
    end = time.monotonic() + PATIENCE_SECONDS
    with connection.cursor() as cursor:
        while found := cursor.execute(others).fetchone()[0]:
            assert time.monotonic() < end, found
            time.sleep(0.02)


def _test_database_url() -> str:
    """The URL of the database that pytest created: another name on the same server."""
    database = settings.DATABASES["default"]
    who = quote(database["USER"]) + (f":{quote(database['PASSWORD'])}" if database["PASSWORD"] else "")
    place = (
        f"?host={quote(database['HOST'], safe='/')}&port={database['PORT']}" if database["HOST"].startswith("/") else ""
    )
    host = "" if place else f"{database['HOST']}:{database['PORT']}"
    return f"postgres://{who}@{host}/{quote(database['NAME'])}{place}"


def _wait_until_up(site: Site, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the web process ended with exit code {process.returncode}; its output says why")
        try:
            if httpx.get(f"{site.url}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError(f"the web process {process.pid} runs, and did not answer in {PATIENCE_SECONDS:.0f} s")
