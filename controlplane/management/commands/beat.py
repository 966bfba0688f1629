"""The beat process: `manage.py beat` starts what is due regularly. Of several, one does and the others stand by."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from celery.apps.beat import Beat as CeleryBeat
from django.conf import settings
from django.core.management.base import BaseCommand

from common.db.leadership import Leadership
from controlplane.celery import app

TERMINATED = 128 + signal.SIGTERM


class Beat(CeleryBeat):  # type: ignore[misc]  # celery has no types
    """Celery's, but that a signal always ends it: Celery's own handler first writes the schedule, and where that fails in the
    middle of another write the error is logged as one of a task, and the signal is lost.
    """

    def __init__(self, *, asked_to_stop: threading.Event, **options: Any) -> None:
        super().__init__(**options)
        self._asked_to_stop = asked_to_stop

    def install_sync_handler(self, service: Any) -> None:
        def end(*_: object) -> None:
            service.stop()  # it writes the schedule when its loop ends
            sys.exit(TERMINATED)  # out of its pause

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        if self._asked_to_stop.is_set():
            sys.exit(TERMINATED)


class Command(BaseCommand):
    help = "Start the regular tasks (cleaning, packing, trimming, rolling up) when they are due."

    def handle(self, *args: Any, **options: Any) -> None:
        Path(settings.CELERY_BEAT_SCHEDULE_FILENAME).parent.mkdir(parents=True, exist_ok=True)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        lead = Leadership("beat")
        if not lead.wait(stop):
            return

        def interrupt(*_: object) -> None:  # until the service has its own
            stop.set()
            sys.exit(TERMINATED)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, interrupt)
        if stop.is_set():  # by a signal a moment ago
            return

        def end() -> None:  # our supervisor restarts us, to stand by
            os.kill(os.getpid(), signal.SIGTERM)

        lead.keep(stop, lost=end)
        Beat(app=app, loglevel="WARNING", quiet=True, pidfile=None, asked_to_stop=stop).run()
