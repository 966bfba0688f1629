"""A Postgres connection that waits for an answer only for a limited time.

A stopped server, or a network that drops packets, sends nothing at all, and libpq would wait forever.
"""

from typing import Any, ClassVar

from psycopg import Connection, OperationalError
from psycopg.errors import _WaitTimeout

from .db_times import read_times_fast


class PatientConnection(Connection[Any]):
    answer_seconds: ClassVar[float | None] = None  # no limit: migrations and tasks may take their time

    @classmethod
    def connect(cls, *arguments: Any, **options: Any) -> "PatientConnection":
        connection = super().connect(*arguments, **options)
        read_times_fast(connection)
        return connection

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
        except _WaitTimeout as error:
            self.pgconn.finish()  # a late answer must not be taken for that of another query
            raise OperationalError(f"the database did not answer within {self.answer_seconds} s") from error


def answer_within(seconds: float) -> None:
    """Set the limit for this process, from now on."""
    PatientConnection.answer_seconds = seconds
