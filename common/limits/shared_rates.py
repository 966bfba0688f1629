"""The buckets that limit requests, shared by all web processes through messages in Redis.

A request is decided at once from the buckets of its own process. Threads report to the other processes what was taken here,
and take off here what others let through: at most about half a second late. Without Redis the limits count within each
process. The limits of docs/scaling.md and ADR 31 follow from the constants here and in rates.py.
"""

import heapq
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.utils.crypto import salted_hmac
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import TimeoutError as NoAnswer
from redis.retry import Retry

from .rates import Buckets, Taken

log = logging.getLogger(__name__)

CHANNEL = "muster:rates"
REPORT_SECONDS = 0.5  # from the first unreported request until the message
PAUSE_SECONDS = 1.0  # after a failure
ANSWER_SECONDS = 2.0  # for Redis to connect, and to take a message
QUIET_SECONDS = 30.0  # without a message the connection is tested: a proxy may have dropped it without a word
MOST_KEYS = 1000  # in one message; those that took the largest part of their limit
MOST_BYTES = 128 << 10  # twice the largest message that is sent
MOST_REQUESTS = 1 << 31  # in one number of a message
_NAME = re.compile("[0-9a-f]{32}")


def pseudonym(who: str) -> str:
    """Return 128 bits in hex that name a key to processes with the same secret key.

    Keys hold addresses and users' ids, which Redis need not see, and a plain digest of an address could be guessed.
    """
    return salted_hmac("muster.rates", who, algorithm="sha256").hexdigest()[:32]


class Exchange:
    """Two threads that share the buckets of one process, started by its first request that counts.

    Neither wakes while nothing is taken anywhere, but for a test of the quiet connection.
    """

    def __init__(self, buckets: Buckets):
        self.buckets = buckets
        self._reset()
        buckets.wake = self._wake
        os.register_at_fork(after_in_child=self._forked)

    def _reset(self) -> None:
        self.sender = secrets.token_hex(8)
        self._news = threading.Event()
        self._troubles: dict[str, str] = {}  # thread -> why it has no connection
        self._lock = threading.Lock()
        self._is_started = False

    def _forked(self) -> None:
        """Begin anew in a forked child: it inherits no thread, and perhaps a lock that one of them held."""
        self._reset()
        self.buckets.lock = threading.Lock()
        self.buckets.drain(seconds=REPORT_SECONDS)  # the parent reports it

    def _wake(self) -> None:
        if not self._is_started:
            self._start()
        self._news.set()

    def _start(self) -> None:
        try:
            for one in (self._publish, self._subscribe):
                threading.Thread(target=self._keep, args=[one], daemon=True, name=f"rates{one.__name__}").start()
        except RuntimeError as error:  # the machine has no thread left: the request must not fail for it
            log.warning("rates are limited within this process only: %s", error)
            self.buckets.wake = None
        self._is_started = True

    def _keep(self, work: Callable[[Redis], None]) -> None:
        """Do this for ever, with another connection after each failure."""
        while True:
            try:
                with _client() as redis:
                    work(redis)
            except Exception as error:  # whatever Redis or its client come up with, the thread goes on
                self._note(work.__name__, str(error) or type(error).__name__)
            # Not reported later: other buckets have refilled meanwhile. And keys must not pile up.
            self.buckets.drain(seconds=PAUSE_SECONDS)
            time.sleep(PAUSE_SECONDS)

    def _publish(self, redis: Redis) -> None:
        """Publish what is taken here, until Redis does not take it."""
        redis.ping()
        self._note("_publish", "")
        while True:
            self._news.wait()
            self._news.clear()
            began = time.monotonic()
            time.sleep(REPORT_SECONDS)
            taken = self.buckets.drain(seconds=time.monotonic() - began)
            if taken:
                redis.publish(CHANNEL, written(self.sender, taken))

    def _subscribe(self, redis: Redis) -> None:
        """Take off what others took, until the connection is lost."""
        with redis.pubsub() as channel:  # type: ignore[no-untyped-call]  # redis-py annotates the others
            channel.subscribe(CHANNEL)
            is_asked = is_warned = False
            while True:
                message = channel.get_message(timeout=ANSWER_SECONDS if is_asked else QUIET_SECONDS)
                if message is None and is_asked:
                    raise NoAnswer("no answer")
                if is_asked := message is None:
                    channel.ping()
                elif message["type"] == "subscribe":
                    self._note("_subscribe", "")
                elif message["type"] == "message" and not self._apply(message["data"]) and not is_warned:
                    is_warned = True  # once for each connection: a flood of them must not become one of the log
                    log.warning("not a message of rates: %.80r", message["data"])

    def _apply(self, data: object) -> bool:
        """Take off what a message reports; returns False, and does nothing, for anything that is none."""
        try:
            sender, taken = read(data)
        except (ValueError, RecursionError):
            return False
        if sender != self.sender:
            self.buckets.spend(taken)
        return True

    def _note(self, thread: str, trouble: str) -> None:
        """Record why a thread has no connection, empty if it has one; log when that changes for both together."""
        with self._lock:
            was_well = not any(self._troubles.values())
            self._troubles[thread] = trouble
            is_well = not any(self._troubles.values())
        if was_well and not is_well:
            log.warning("rates are limited within this process only, until Redis answers: %s", trouble)
        elif is_well and not was_well:
            log.info("rates are shared with the other processes again")


def written(sender: str, taken: Taken) -> bytes:
    """Return a message; of more than MOST_KEYS keys those that took the largest part of their limit."""
    if len(taken) > MOST_KEYS:
        taken = dict(heapq.nlargest(MOST_KEYS, taken.items(), key=lambda one: one[1][0] / one[1][1]))
    return json.dumps({"from": sender, "took": taken}, separators=(",", ":")).encode()


def read(data: object) -> tuple[str, Taken]:
    """Return the sender of a message, and what it took. Raises ValueError or RecursionError for anything else."""
    if not isinstance(data, bytes) or len(data) > MOST_BYTES:
        raise ValueError("too large")
    match json.loads(data):
        case {"from": str(sender), "took": dict(took)} if len(took) <= MOST_KEYS:
            return sender, dict(_entry(name, counts) for name, counts in took.items())
    raise ValueError("no sender, or not what it took")


def _entry(name: str, counts: Any) -> tuple[str, tuple[int, int]]:
    if not _NAME.fullmatch(name) or not isinstance(counts, list) or len(counts) != 2:
        raise ValueError("not a name with two numbers")
    requests, per_minute = counts
    if not all(type(one) is int and 0 < one <= MOST_REQUESTS for one in counts):  # True is an int, too
        raise ValueError("not a number of requests")
    return name, (requests, per_minute)


def _client() -> Redis:
    never = Retry(NoBackoff(), 0)
    return Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        socket_keepalive=True,
        retry=never,
    )


buckets = Buckets(name=pseudonym)
exchange = Exchange(buckets)
