"""Others who want what the database has locked: threads with a connection of their own, and when they wait."""

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
    """Until so many wait for a lock. The database tells nobody of that, so it is asked."""
    until = time.monotonic() + PATIENCE_SECONDS
    while _waiting() < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def _waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return int(cursor.fetchone()[0])
