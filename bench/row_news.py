"""Every committed change of a replica's row, from the database itself: a trigger notifies a listener at commit."""

import json
import threading
import time
from dataclasses import dataclass, field

import psycopg

TRIGGER = """
    CREATE OR REPLACE FUNCTION bench_notify() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('bench', json_build_array(NEW.name, NEW.reason, txid_current()::text)::text);
        RETURN NEW;
    END $$;
    DROP TRIGGER IF EXISTS bench_notify ON jobs_replica;
    CREATE TRIGGER bench_notify AFTER UPDATE ON jobs_replica FOR EACH ROW EXECUTE FUNCTION bench_notify();
"""


@dataclass(frozen=True)
class RowChange:
    at: float
    pod: str
    reason: str
    transaction: str


@dataclass
class RowListener:
    """Listens in a thread of its own, on a connection of its own."""

    url: str
    changes: list[RowChange] = field(default_factory=list)

    def __enter__(self) -> "RowListener":
        self._over = threading.Event()
        self._connection = psycopg.connect(self.url, autocommit=True)
        self._connection.execute(TRIGGER)
        self._connection.execute("LISTEN bench")
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._connection.execute("DROP TRIGGER bench_notify ON jobs_replica")
        self._connection.close()

    def _listen(self) -> None:
        while not self._over.is_set():
            for note in self._connection.notifies(timeout=0.2):
                pod, reason, transaction = json.loads(note.payload)
                self.changes.append(RowChange(time.time(), pod, reason, transaction))


def commits(url: str) -> int:
    """Of the whole database since it began, readers' included."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert found is not None
    return int(found[0])


def reasons(url: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT name, reason FROM jobs_replica").fetchall())
