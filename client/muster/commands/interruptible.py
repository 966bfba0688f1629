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


def interruptible(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, and raise the same error at the end. An abandoned thread ends with the process."""
    items_read: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(AHEAD)

    def read() -> None:
        try:
            for item in items:
                items_read.put((item,))
            items_read.put(None)
        except BaseException as error:  # re-raised for the consumer
            items_read.put(error)

    threading.Thread(target=read, name="reading", daemon=True).start()
    while (news := items_read.get()) is not None:
        if isinstance(news, BaseException):
            raise news
        yield news[0]


def run_interruptibly(work: Callable[[], T]) -> T:
    return next(interruptible(work() for _ in range(1)))
