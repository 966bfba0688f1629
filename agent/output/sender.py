"""Send the spool, oldest batch first, and pass on the commands in the replies. A thread of its own."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Callable

from .. import faultpoints
from ..control import Closed, ControlPlane, Refused, Reply, Unreachable
from ..wire import batch as form
from .spool import Spool

FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 5.0
LOGGED_REFUSALS = 20

Command = dict  # {"do": "stop"}; unknown ones are ignored, so that a newer control plane works with an older agent


class BatchSender(threading.Thread):
    """Retry forever while the replica runs; `finish` sets a deadline."""

    def __init__(
        self,
        spool: Spool,
        *,
        control: ControlPlane,
        on_command: Callable[[dict[str, Any]], None],
        trouble: Callable[[str], None],
    ) -> None:
        super().__init__(name="sender", daemon=True)
        self._spool, self._control = spool, control
        self._on_command, self._trouble = on_command, trouble
        self._deadline: float | None = None  # monotonic; None while the replica runs
        self._waiter = threading.Event()
        self._failures = self._refusals = 0
        self.is_closed = False
        self.was_answered = False  # ever

    def finish(self, *, within_seconds: float) -> bool:
        """Send what is left; return whether everything was acknowledged within that time."""
        self._deadline = time.monotonic() + within_seconds
        self._waiter.set()
        self._spool.poke()
        self.join(within_seconds + 1)
        return len(self._spool) == 0 and not self.is_closed

    def run(self) -> None:
        wanted: int | None = None
        while not self._is_over():
            # No deadline, no timeout: an agent with nothing to send does not wake up.
            self._spool.wait(None, until=self._is_over)
            try:
                wanted = self._send(wanted)
            except Closed as error:
                self._close(str(error))
            except Unreachable as error:
                self._back_off(str(error), at_least=error.wait_seconds)
            except Exception as error:  # the thread's outermost loop: without it the replica falls silent
                self._back_off(f"{type(error).__name__}: {error}")

    def _send(self, wanted: int | None) -> int | None:
        """Send one batch; return the number of the one to send next, None for the oldest."""
        found = self._spool.get(wanted) or self._spool.get()
        if found is None:
            return None
        seq, body = found
        try:
            with faultpoints.around("agent.send"):
                reply = self._control.post(form.stamped(body, sent_at=time.time()))
        except Refused as error:
            return self._lighten(seq, error)
        self.was_answered = True
        self._spool.acknowledge(reply.ack)
        self._failures = 0
        for command in reply.commands:
            self._on_command(command)
        return self._next(seq, reply=reply)

    def _lighten(self, seq: int, error: Refused) -> int:
        """Reduce a refused batch: it will always be refused, and all later ones wait for it."""
        self._refusals += 1
        if self._refusals <= LOGGED_REFUSALS:
            self._trouble(f"batch {seq} was refused and is sent with less: {error}")
        if not self._spool.refused(seq, kinds=error.kinds):
            raise Unreachable(f"an empty batch was refused: {error}")
        return seq

    def _next(self, seq: int, *, reply: Reply) -> int | None:
        if reply.ack >= seq:
            return None
        if self._spool.get(reply.ack + 1) is None or reply.ack + 1 == seq:
            raise Unreachable(f"batch {seq} was not taken: the control plane has {reply.ack}")
        return reply.ack + 1

    def _close(self, text: str) -> None:
        self._trouble(f"the attempt is closed: {text}")
        self.is_closed = True
        self._on_command({"do": "stop", "reason": "the attempt is closed"})

    def _back_off(self, text: str, *, at_least: float = 0.0) -> None:
        self._failures += 1
        if self._failures in (1, 10) or self._failures % 100 == 0:
            self._trouble(f"cannot send, try {self._failures}: {text}")
        longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(self._failures, 10))
        # Jitter: a thousand agents must not reconnect in the same instant.
        wait = max(longest, at_least) * random.uniform(0.5, 1.0)
        if self._deadline is not None:
            wait = min(wait, LONGEST_WAIT_SECONDS)
        self._waiter.wait(wait)
        self._waiter.clear()

    def _is_over(self) -> bool:
        if self.is_closed:
            return True
        if self._deadline is None:
            return False
        return len(self._spool) == 0 or time.monotonic() >= self._deadline
