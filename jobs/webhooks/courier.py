"""Deliver from threads of the tasks process, without Redis or Celery: it looks for what is due each second.

One request at a time for each webhook, and half of the threads for each team: receivers that answer slowly delay their
own deliveries, and those of other webhooks of their team if they are many, but no other team's.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from django.db import connections
from django.utils import timezone

from common.db import db_connections

from . import sending
from .sending import Claim

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
THREADS = 8


class Courier:
    """`clock` returns the time; it decides what is due."""

    def __init__(self, *, threads: int = THREADS, clock: Callable[[], datetime] = timezone.now):
        self.threads, self.clock = threads, clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="webhook")
        self._busy: dict[int, int] = {}  # webhook -> its team
        self._changed = threading.Condition()
        self._is_awake = self._is_over = False

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="courier").start()

    def wake(self) -> None:
        """Look at once for what is due."""
        with self._changed:
            self._is_awake = True
            self._changed.notify_all()

    def look(self) -> int:
        """Begin to deliver what is due, one delivery of each webhook. Return how many were begun."""
        with self._changed:
            busy = dict(self._busy)
        if len(busy) >= self.threads:
            return 0
        most_of_team = max(1, self.threads // 2)
        found = sending.due(self.clock(), busy=busy, most=self.threads - len(busy), most_of_team=most_of_team)
        return sum(self._begin(webhook) for webhook in found)

    def settle(self, within: float) -> bool:
        """Wait until nothing is being sent, at most `within` seconds; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, within)

    def close(self) -> None:
        """Look no more, and wait for what is being sent."""
        self._is_over = True
        self.wake()
        self._pool.shutdown(wait=True)

    def _begin(self, webhook: int) -> bool:
        claim = sending.claim(webhook, now=self.clock())
        if claim is not None:
            with self._changed:
                self._busy[webhook] = claim.webhook.team_id
            self._pool.submit(self._deliver, claim)
        return claim is not None

    def _deliver(self, claim: Claim) -> None:
        try:
            sending.deliver(claim)
        except Exception:  # Postgres may be down: the delivery is due again when its claim ends
            log.exception("delivery %s: not recorded", claim.delivery)
        finally:
            connections.close_all()
            with self._changed:
                self._busy.pop(claim.webhook.pk, None)
            self.wake()

    def _run(self) -> None:
        while not self._is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._is_awake, EVERY_SECONDS)
                self._is_awake = False
            try:
                self.look()
                db_connections.give_back()
            except Exception as error:  # outermost handler of this thread; Postgres may be down
                log.warning("nothing delivered: %s", error)
                connections.close_all()


_courier: Courier | None = None


def start() -> None:
    """Start this process's courier."""
    global _courier
    _courier = Courier()
    _courier.start()


def wake() -> None:
    """Look at once, where this process has a courier: a step that it recorded is reported without delay."""
    if _courier is not None:
        _courier.wake()
