"""A connection to Postgres that waits for an answer only so long. A stopped server says nothing at all, nor does a network
that swallows packets, and libpq would wait for ever."""

from typing import Any, ClassVar

from psycopg import Connection, OperationalError
from psycopg.errors import _WaitTimeout


class PatientConnection(Connection[Any]):
    answer_seconds: ClassVar[float | None] = None  # no bound: migrations and tasks may take their time

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
        except _WaitTimeout as error:
            self.pgconn.finish()  # whatever it says later belongs to nobody
            raise OperationalError(f"the database did not answer within {self.answer_seconds} s") from error


def answer_within(seconds: float) -> None:
    """From now on, in this process."""
    PatientConnection.answer_seconds = seconds
