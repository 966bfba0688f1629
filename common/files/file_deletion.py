"""Stored files are not deleted while a backup copies them: it copies what the rows of one moment name, for hours maybe.

Whoever deletes files holds a lock together with others, and the backup holds it alone; as in common/db/leadership.py the
locks belong to connections, so Postgres frees those of a process that died.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..db.leadership import KEYS, NAMESPACE, own_connection

LOOK_SECONDS = 0.5
_LOCK = (NAMESPACE, KEYS["backup"])


@contextmanager
def allowed() -> Iterator[bool]:
    """Yield whether files may be deleted until the end of the block. Raises psycopg.OperationalError without a database."""
    with own_connection() as session:
        row = session.execute("SELECT pg_try_advisory_lock_shared(%s, %s)", _LOCK).fetchone()
        yield bool(row and row[0])


@contextmanager
def paused(*, say: Callable[[str], None]) -> Iterator[None]:
    """Keep everybody from deleting files until the end of the block; waits for those who are at it."""
    with own_connection() as session:
        is_announced = False
        while not (row := session.execute("SELECT pg_try_advisory_lock(%s, %s)", _LOCK).fetchone()) or not row[0]:
            if not is_announced:
                say("waiting: files are being deleted, or another backup is running")
                is_announced = True
            time.sleep(LOOK_SECONDS)
        yield
