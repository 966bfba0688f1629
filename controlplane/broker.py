"""How the tasks process and beat go on while Redis is away or refuses: they try again, and say why once.

Celery ends its worker when Redis refuses a command, and writes a line for each try and a traceback for each message.
"""

import time
from typing import Any

from celery.beat import PersistentScheduler
from celery.worker import state
from celery.worker.consumer.consumer import Consumer

from common.signals import redis_trouble

PAUSE_SECONDS = 2.0  # before the next try
# Of kombu's Connection.ensure_connection: always the same pause, and without end.
_PATIENTLY = {"interval_start": PAUSE_SECONDS, "interval_step": 0, "interval_max": PAUSE_SECONDS, "max_retries": None}


class PatientConsumer(Consumer):  # type: ignore[misc]  # Celery has no types
    """Takes messages, and waits for a Redis that can be used. The sweeper drives jobs meanwhile."""

    def ensure_connected(self, conn: Any) -> Any:
        found = conn.ensure_connection(_note, callback=state.maybe_shutdown, **_PATIENTLY)
        self.first_connection_attempt = False
        return found

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        redis_trouble.failed(exc)
        _pause()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        super().on_connection_error_after_connected(exc)
        if not isinstance(exc, self.connection_errors):  # of a connection that was lost, the next try reports why
            redis_trouble.failed(exc)
        _pause()

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        take = super().create_task_handler(*args, **kwargs)

        def note_and_take(message: Any) -> Any:
            redis_trouble.worked()
            return take(message)

        return note_and_take


class PatientScheduler(PersistentScheduler):  # type: ignore[misc]
    """Sends what is due; what Redis does not take is not sent later, since it is due again soon."""

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except Exception as error:  # anything the broker's client raises, as in the doorbell
            redis_trouble.failed(error)
        else:
            redis_trouble.worked()

    def _ensure_connected(self) -> Any:
        return self.connection.ensure_connection(_note, **_PATIENTLY)


def _note(error: Exception, interval: float) -> None:
    redis_trouble.failed(error)


def _pause() -> None:
    end = time.monotonic() + PAUSE_SECONDS
    while time.monotonic() < end:
        state.maybe_shutdown()
        time.sleep(0.1)
