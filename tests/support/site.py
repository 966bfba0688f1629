"""The real web process on the test database, for streams and browsers, which Django's test client cannot serve."""

import os
import socket
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
    port = port or free_port()
    argv = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application", "--port", str(port)]
    environment = {
        **os.environ,
        "DATABASE_URL": _test_database_url(),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        **settings_,
    }
    process = subprocess.Popen(
        [
            *argv,
            "--http",
            "controlplane.http_protocol:BoundedHttp",
            "--timeout-graceful-shutdown",
            "1",
            "--log-level",
            "error",
            "--no-server-header",
            "--no-proxy-headers",
        ],
        env=environment,
    )
    try:
        site = Site(f"http://127.0.0.1:{port}", process.pid)
        _wait_until_up(site)
        yield site
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _wait_until_up(site: Site) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            if httpx.get(f"{site.url}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError("the web process did not come up")
