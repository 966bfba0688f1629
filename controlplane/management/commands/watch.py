"""The watcher process: `manage.py watch`. Of several, one watches and the others stand by."""

import signal
import threading
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from common.db.leadership import Leadership
from common.machine import gc_tuning
from common.telemetry import traces
from controlplane.telemetry import metrics
from jobs.control.watcher import watch


class Command(BaseCommand):
    help = "Follow the clusters and wake the jobs whose replicas changed."

    def handle(self, *args: Any, **options: Any) -> None:
        stop, lost = threading.Event(), threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        gc_tuning.settle()
        metrics.serve()
        traces.start("watcher")
        lead = Leadership("watcher")
        if not lead.wait(stop):
            return

        def end() -> None:
            lost.set()
            stop.set()

        lead.keep(stop, lost=end)
        try:
            watch(stop)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        if lost.is_set():  # our supervisor restarts us, to stand by
            raise CommandError("another process took over while this one had no connection to the database")
