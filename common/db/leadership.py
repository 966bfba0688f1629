"""One active process of several: the holder of a lock in Postgres, which Postgres itself frees when the holder is gone.

The lock belongs to a connection of its own (a session-level advisory lock, PostgreSQL 14 manual, 13.3.5), so no clock is
compared and nothing needs to be renewed. A connection that is cut without a word is closed by the server after
SILENT_SECONDS. A pooler between Muster and Postgres must therefore keep sessions (PgBouncer: `pool_mode=session`).
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from django.db import connection

log = logging.getLogger(__name__)

NAMESPACE = 0x6D757374  # "must": the first half of our advisory locks' keys
KEYS = {"beat": 1, "watcher": 2, "migrate": 3, "backup": 4}
LOOK_SECONDS = 1.0
SILENT_SECONDS = 15
# How soon the server notices that the other side is gone: after a pause of 5 s, two probes 5 s apart.
_KEEPALIVE = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 2"


class Leadership:
    """The lock of one role. Not thread-safe: one thread waits for it and then watches it."""

    def __init__(self, role: str, *, connect: Callable[[], "psycopg.Connection[Any]"] | None = None) -> None:
        """`role` is a key of KEYS. `connect` opens a connection in autocommit mode; for tests."""
        self._role, self._key = role, KEYS[role]
        self._connect = connect or own_connection
        self._session: psycopg.Connection[Any] | None = None

    def wait(self, stop: threading.Event) -> bool:
        """Return True once this process leads, and False when `stop` is set first. A database that is away is waited for."""
        last = ""
        while not stop.is_set():
            try:
                if self._take():
                    log.info("%s: this process leads", self._role)
                    return True
                now = f"{self._role}: another process leads; this one takes over when that ends"
            except psycopg.OperationalError as error:
                self.give_up()
                now = f"{self._role}: the database does not answer: {str(error).strip()}"
            if now != last:
                log.info("%s", now)
                last = now
            stop.wait(LOOK_SECONDS)
        return False

    def is_held(self) -> bool:
        """Ask Postgres, on the connection that holds the lock; False also when that cannot be asked."""
        try:
            return self._session is not None and self._session.execute("SELECT 1").fetchone() is not None
        except psycopg.OperationalError:
            return False

    def keep(self, stop: threading.Event, *, lost: Callable[[], None]) -> None:
        """Watch the lock from a thread of its own, which from now on is the only one to use this object."""
        threading.Thread(target=self.watch, args=(stop,), kwargs={"lost": lost}, name="lead", daemon=True).start()

    def watch(self, stop: threading.Event, *, lost: Callable[[], None]) -> None:
        """Block until `stop` is set; call `lost` and return when another process has the lock.

        A holder whose connection ended goes on and takes the lock again: while the database is away nobody else can.
        """
        while not stop.wait(LOOK_SECONDS):
            if self.is_held():
                continue
            try:
                if not self._take():
                    log.warning("%s: another process leads now", self._role)
                    lost()
                    return
                log.warning("%s: the connection to the database ended; this process leads again", self._role)
            except psycopg.OperationalError:
                self.give_up()

    def give_up(self) -> None:
        """Free the lock by closing its connection."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _take(self) -> bool:
        if self._session is None or self._session.closed:
            self._session = self._connect()
        row = self._session.execute("SELECT pg_try_advisory_lock(%s, %s)", (NAMESPACE, self._key)).fetchone()
        return bool(row and row[0])


def own_connection(*, seconds: int = 5) -> "psycopg.Connection[Any]":
    """Open a connection outside of the pool, in autocommit mode; raises psycopg.OperationalError.

    `seconds`: how long to wait for it; a server that says nothing afterwards is away after twice as long.
    """
    parameters = connection.get_connection_params()
    for name in ("pool", "cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    parameters |= {
        "connect_timeout": str(seconds),
        "tcp_user_timeout": str(2000 * seconds),
    }
    session = psycopg.connect(**parameters, autocommit=True)
    session.execute(_KEEPALIVE)
    return session
