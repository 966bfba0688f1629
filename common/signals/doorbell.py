"""Doorbells wake tasks and notify browsers; every message is only a hint to read the row again.

A doorbell never delays or fails its caller: `ring` only queues the message, and one thread per process sends it. Lost
messages are made up for: tasks by the sweeper; browsers are notified of a loss as soon as Redis answers again,
and look at what they show once a minute in case the process that changed it died before it could say so.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import transaction
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .. import faultpoints
from ..http import request_ids
from ..telemetry import measures, traces
from . import redis_trouble

CHANNEL = "muster:live"
CAUSE = "muster_request"  # a message's header: the id of the request that caused it
HINT = "hint "  # how keys of hints begin
LOST = json.dumps({"lost": True})  # hints may be missing: every page fetches everything
MOST_WAITING = 5000  # beyond that Redis has been away for long, and the sweeper takes over
REST_SECONDS = 1.0  # pause after a failure, so that an unavailable Redis is not called a thousand times


class Bell:
    """Send queued messages from its own thread; a message that is already queued is not queued twice."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[], object]] = {}
        self._news = threading.Condition()
        self._pid = 0

    def ring(self, key: str, say: Callable[[], object]) -> None:
        with self._news:
            if self._pid != os.getpid():  # a forked child does not inherit its parent's thread
                self._waiting, self._pid = {}, os.getpid()
                threading.Thread(target=self._run, daemon=True, name="doorbell").start()
            if key in self._waiting or len(self._waiting) < MOST_WAITING:
                self._waiting.setdefault(key, say)
            else:
                measures.lost_hints.labels("dropped").inc()
                if key.startswith(HINT):
                    self._waiting.setdefault(LOST, _say_lost)
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._waiting:
                    self._news.wait()
                key = next(iter(self._waiting))
                say = self._waiting.pop(key)
            try:
                say()
            except Exception as error:  # anything the broker's client raises: the row, which is what counts, is written
                redis_trouble.failed(error)
                measures.lost_hints.labels("not_sent").inc()
                time.sleep(REST_SECONDS)
                if key == LOST or key.startswith(HINT):  # also when the queue is full: this one stands for the others
                    with self._news:
                        self._waiting.setdefault(LOST, _say_lost)


_bell = Bell()
_redis: Redis | None = None


def poke(task: str, *args: Any) -> None:
    """Have a Celery task run soon, once the current transaction is committed."""
    transaction.on_commit(lambda: poke_now(task, *args))


def poke_now(task: str, *args: Any, after_seconds: float = 0) -> None:
    """Like `poke`, but at once: for callers with neither a transaction nor a database connection."""
    cause = request_ids.current()
    headers = traces.headers(is_later=after_seconds > 0) | ({CAUSE: cause} if cause else {})
    _bell.ring(f"{task}{args}", lambda: _send_task(task, args, after_seconds, headers=headers))


def hint(*, job: int, team: int, what: str) -> None:
    """Notify open pages that part of a job changed. `what`: state, ranks, logs, metrics, samples or checkpoints."""
    text = json.dumps({"job": job, "team": team, "what": what})
    transaction.on_commit(lambda: _bell.ring(f"{HINT}{text}", lambda: _publish(text)))


def access_changed(user: int) -> None:
    """Have the open streams of this user check again whether they may continue."""
    text = json.dumps({"access": user})
    transaction.on_commit(lambda: _bell.ring(text, lambda: _publish(text)))


def drain(within: float = 3.0) -> None:
    """Wait until everything queued so far was sent, at most `within` seconds.

    For a command about to exit, and its bell with it.
    """
    sent = threading.Event()
    _bell.ring("drain", sent.set)
    sent.wait(within)


def _send_task(task: str, args: tuple[Any, ...], after_seconds: float, *, headers: dict[str, str]) -> None:
    with faultpoints.around("doorbell.task"):
        current_app.send_task(
            task, args=args, countdown=after_seconds or None, retry=False, ignore_result=True, headers=headers or None
        )
    redis_trouble.worked()


def _say_lost() -> None:
    _publish(LOST)


def _publish(text: str) -> None:
    with faultpoints.around("doorbell.hint"):
        redis_client().publish(CHANNEL, text)
    redis_trouble.worked()


def redis_client() -> Redis:
    """Return this process's client; called by the bell's thread only."""
    global _redis
    if _redis is None:
        never = Retry(NoBackoff(), 0)
        _redis = Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2, retry=never)
    return _redis
