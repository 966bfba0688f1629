"""Read in a separate thread, so that Ctrl-C interrupts the waiting thread and never the reading one.

An interrupt may come between two instructions of a library that has just taken a lock. That lock would never be
released, and its next user would wait forever: the command would announce that it leaves, and hang.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Callable, TypeVar

T = TypeVar("T")

AHEAD = 4  # items read in advance: a terminal may be slower than the server


def apart(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, and raise the same error at the end. An abandoned thread ends with the process."""
    told: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(AHEAD)

    def read() -> None:
        try:
            for item in items:
                told.put((item,))
            told.put(None)
        except BaseException as error:  # re-raised for the consumer
            told.put(error)

    threading.Thread(target=read, name="reading", daemon=True).start()
    while (news := told.get()) is not None:
        if isinstance(news, BaseException):
            raise news
        yield news[0]


def done_apart(work: Callable[[], T]) -> T:
    return next(apart(work() for _ in range(1)))
