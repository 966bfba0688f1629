"""The beat process: `manage.py beat` starts what is due regularly. Of several, one does and the others stand by."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from common.db.leadership import Leadership
from controlplane.celery import app


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
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(143))  # until Celery's service has its own

        def end() -> None:  # our supervisor restarts us, to stand by
            os.kill(os.getpid(), signal.SIGTERM)

        lead.keep(stop, lost=end)
        app.Beat(loglevel="WARNING", quiet=True, pidfile=None).run()
