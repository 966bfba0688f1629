"""One selector for all of the agent's input: pipes, sockets, signals, other threads. It never polls."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from typing import Any, Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
# After a small read, pause this long before the next one: a rank that prints often must not cost a wake-up per line.
NAP_SECONDS = 0.1
LITTLE = 0.25  # of a source's capacity: it does not fill up within a nap


class Loop:
    """Belongs to the main thread; `wake` may be called from any."""

    def __init__(self, *, trouble: Callable[[str], None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._trouble = trouble
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self.watch(self._wake_read, ready=self._drain)
        self.signals: list[int] = []  # arrived and not yet handled
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._arrived)

    def watch(self, source: Any, *, ready: Callable[[], float | None]) -> None:
        """Call `ready` whenever `source` is readable.

        `ready` returns how full the source was, 0 to 1, where that matters.
        """
        self._selector.register(source, selectors.EVENT_READ, ready)

    def forget(self, source: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway
            self._wake_write.send(b"\0")

    def turn(self, *, until: float) -> None:
        """Wait for input, no longer than `until` on the monotonic clock, and dispatch it."""
        timeout = max(0.0, until - time.monotonic())
        most = 0.0
        for key, _ in self._selector.select(0 if self.signals else timeout):
            try:
                most = max(most, key.data() or 0.0)
            except Exception as error:  # the outermost loop: one broken source must not end the others
                self._trouble(f"{type(error).__name__}: {error}")
        if 0 < most < LITTLE:
            time.sleep(NAP_SECONDS)

    def _arrived(self, number: int, frame: Any) -> None:
        self.signals.append(number)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(4096):
                pass
