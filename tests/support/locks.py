"""Concurrent lock waiters for tests: threads with a database connection of their own."""

import threading
import time
from collections.abc import Callable

from django.db import connection

from tests.support.patience import PATIENCE_SECONDS


def in_thread(action: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            action()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def until_waiting(count: int = 1) -> None:
    """Poll until `count` transactions wait for a lock; the database sends no notification of that."""
    until = time.monotonic() + PATIENCE_SECONDS
    while _waiting() < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def _waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])
