"""Reading in a thread of its own, so that Ctrl-C strikes who waits and never who reads.

An interrupt may come between two instructions of a library that has just taken a lock. Nobody gives that lock back, and
the next to want it waits for ever: the command would say that it leaves, and stay.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Callable, TypeVar

T = TypeVar("T")

AHEAD = 4  # items read before anybody takes them: a terminal may be slower than the server


def apart(items: Iterable[T]) -> Iterator[T]:
    """The same items, and the same error at the end. A thread that is left behind ends with the process."""
    told: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(AHEAD)

    def read() -> None:
        try:
            for item in items:
                told.put((item,))
            told.put(None)
        except BaseException as error:  # whoever takes the items gets it
            told.put(error)

    threading.Thread(target=read, name="reading", daemon=True).start()
    while (news := told.get()) is not None:
        if isinstance(news, BaseException):
            raise news
        yield news[0]


def done_apart(work: Callable[[], T]) -> T:
    return next(apart(work() for _ in range(1)))
