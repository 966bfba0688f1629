"""Doorbells: wake a task, tell the browsers. Every message is a hint that somebody should look at the row again.

A doorbell never delays or fails what rings it: 200 ms at most, no retry. What is lost is made up for by the safety
tick (tasks) and by slow polling (browsers).
"""

import json
import logging
import threading
import time
from typing import Any

from django.conf import settings
from django.db import transaction
from redis import Redis

log = logging.getLogger(__name__)

CHANNEL = "muster:live"
_PATIENCE_SECONDS = 0.2
_REST_SECONDS = 2.0  # after a failure, how long nobody rings: a dead Redis must not cost every caller its 200 ms

_redis: Redis | None = None
_quiet_until = 0.0
_lock = threading.Lock()


def poke(task: str, *args: Any) -> None:
    """Have a Celery task run soon, once the current transaction is committed."""
    transaction.on_commit(lambda: poke_now(task, *args))


def poke_now(task: str, *args: Any) -> None:
    """The same at once, for those who hold no transaction and no database connection."""
    _ring(lambda: _send_task(task, args))


def hint(*, job: int, team: int, what: str) -> None:
    """Tell open pages that something of a job changed. `what`: state, ranks, logs or metrics."""
    text = json.dumps({"job": job, "team": team, "what": what})
    transaction.on_commit(lambda: _ring(lambda: _client().publish(CHANNEL, text)))


def _ring(act: Any) -> None:
    global _quiet_until
    if time.monotonic() < _quiet_until:
        return
    try:
        act()
    except Exception as error:  # whatever the broker's client raises, the row is written and that is what counts
        _quiet_until = time.monotonic() + _REST_SECONDS
        log.warning("doorbell not rung for %s s: %s", _REST_SECONDS, error)


def _send_task(task: str, args: tuple[Any, ...]) -> None:
    """Celery's own message through our impatient connection: `.delay()` would block on a stopped Redis."""
    from .celery import app

    with app.connection_for_write(transport_options=_impatient()) as connection:
        app.send_task(task, args=args, connection=connection, retry=False, ignore_result=True)


def _impatient() -> dict[str, Any]:
    return {
        **settings.CELERY_BROKER_TRANSPORT_OPTIONS,
        "socket_timeout": _PATIENCE_SECONDS,
        "socket_connect_timeout": _PATIENCE_SECONDS,
        "max_retries": 0,
    }


def _client() -> Redis:
    global _redis
    with _lock:
        if _redis is None:
            _redis = Redis.from_url(
                settings.REDIS_URL,
                socket_timeout=_PATIENCE_SECONDS,
                socket_connect_timeout=_PATIENCE_SECONDS,
                retry=None,
                retry_on_error=[],
            )
    return _redis
