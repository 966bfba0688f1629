"""What a process logs of a Redis that is away or refuses: one line with the way out, repeated rarely; one when it is over.

All uses of Redis report here how they went. Nothing waits for Redis, so there is nothing else to do about it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator

from redis.exceptions import AuthenticationError, NoPermissionError, OutOfMemoryError, ReadOnlyError, RedisError

log = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0  # how often the same trouble is logged
SETTLED_SECONDS = 5.0  # without a failure before Redis counts as usable: it may refuse only some commands

_REPLICA = "it is a replica, which takes no changes: REDIS_URL must name the primary"
_KNOWN: tuple[tuple[type[Exception], str], ...] = (
    (AuthenticationError, "it refuses the user or the password of REDIS_URL"),
    (NoPermissionError, "it does not let the user of REDIS_URL do what Muster needs: ACL SETUSER NAME on ~* &* +@all"),
    (ReadOnlyError, _REPLICA),
    (OutOfMemoryError, "its memory is full: a larger maxmemory, or maxmemory-policy allkeys-lru"),
)


def reason(error: BaseException) -> str:
    """Return why Redis could not be used and what to do, in one line without secrets."""
    found = error
    for one in _chain(error):
        for kind, words in _KNOWN:
            if isinstance(one, kind):
                return words
        if isinstance(one, RedisError | OSError):  # not the IndexError of an empty pool, which is where it began
            found = one
    text = " ".join(str(found).split()) or type(found).__name__
    if text.startswith("UNBLOCKED"):  # the answer to a waiting client when a primary becomes a replica
        return _REPLICA
    return f"{text} (REDIS_URL)"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and what it came from: kombu and Celery wrap the errors of Redis's client."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class RedisTrouble:
    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: dict[str, float] = {}  # reason -> when
        self._failed_at = 0.0
        self._is_logged = False

    def failed(self, error: BaseException) -> None:
        """Note that Redis could not be used, and log it unless that was done lately."""
        now, why = self._clock(), reason(error)
        with self._lock:
            self._failed_at = now
            self._logged = {one: at for one, at in self._logged.items() if now - at < REPEAT_SECONDS}
            if why in self._logged:
                return
            self._logged[why] = now
            self._is_logged = True
        log.warning("Redis cannot be used, so jobs start some seconds later and pages are updated less often: %s", why)

    def worked(self) -> None:
        """Note that Redis did something; logged if it could not be used before."""
        if not self._is_logged:  # the usual case, without a lock
            return
        with self._lock:
            if not self._is_logged or self._clock() - self._failed_at < SETTLED_SECONDS:
                return
            self._is_logged = False
        log.warning("Redis can be used again")


class WithoutRetries(logging.Filter):
    """Drops what Celery writes of each connection that was lost: if no other can be made, that is logged here."""

    def filter(self, record: logging.LogRecord) -> bool:
        args = record.args if isinstance(record.args, tuple) else ()
        if str(record.msg).startswith(_AFTERWARDS):
            return not any(isinstance(one, RedisError | OSError) for one in args)
        return not any(isinstance(one, str) and one.startswith(_LOST) for one in args)


_LOST = "consumer: Connection to broker lost"  # celery/worker/consumer/consumer.py, CONNECTION_RETRY
# With a traceback each: celery/worker/loops.py, and kombu/message.py, whose message comes again.
_AFTERWARDS = ("Error cleaning up after event loop", "Couldn't ack")
_trouble = RedisTrouble()
failed, worked = _trouble.failed, _trouble.worked
